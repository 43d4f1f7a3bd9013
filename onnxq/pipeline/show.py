"""A page shown where somebody can see it: in the output of a notebook's cell, or in a browser."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

from onnxq.progress.bar import in_notebook

HEIGHT = 720
"""Pixels of a page in a notebook."""

BASE = '<base href="about:srcdoc">'
"""Or the links of the page to its own views would lead to those of the notebook around it."""


@dataclass(frozen=True)
class ShownPage:
    """A page that a notebook shows in a frame of its own, which can run its program and reach nothing else."""

    path: Path
    height: int = HEIGHT

    def _repr_html_(self) -> str:
        text = self.path.read_text(encoding="utf-8").replace("<head>", f"<head>{BASE}", 1)
        style = f"width: 100%; height: {self.height}px; border: 1px solid #8888"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{escape(text)}"></iframe>'


def show_page(page: Path) -> Path | ShownPage:
    """In a notebook a value that it displays; else the path, opened in a browser where there is a screen."""
    if in_notebook():
        return ShownPage(page)
    if _has_screen():
        import webbrowser

        webbrowser.open(page.resolve().as_uri())
    return page


def _has_screen() -> bool:
    """Whether a browser would have a window: without one, Python falls back on programs that take the terminal."""
    return sys.platform in ("win32", "darwin") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
