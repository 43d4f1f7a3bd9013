"""A real browser for the tests of pages: Chromium, driven by playwright-core, with axe-core beside it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("browse.mjs")
FRAME_SCRIPT = Path(__file__).with_name("browse_frame.mjs")
FOLDER = "ONNXQ_BROWSER"
"""Names the folder in which npm has installed playwright-core and axe-core (see `make test-page`)."""


def browse(page: Path, **asked: Any) -> dict[str, Any]:
    """Open a page and walk through its views."""
    return _run(SCRIPT, json.dumps({"page": str(page), **asked}))


def browse_frame(document: Path) -> dict[str, Any]:
    """Open a document that shows a page in a frame, and click through the views of the page."""
    return _run(FRAME_SCRIPT, str(document))


def _run(script: Path, argument: str) -> dict[str, Any]:
    """What a script finds in the browser; a test whose machine has none is skipped."""
    node = shutil.which("node")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    modules = Path(os.environ.get(FOLDER, ".browser")).resolve() / "node_modules"
    if node is None or chromium is None or not (modules / "playwright-core").is_dir():
        pytest.skip("there is no node, no Chromium or no playwright-core here: see docs/report.md")
    command = [node, str(script), str(modules), chromium, argument]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def serious(found: dict[str, Any]) -> list[str]:
    """What axe-core says that shuts people out."""
    return [
        f"{one['view']}: {one['id']} ({one['help']}) {one['targets'][:1]}"
        for one in found["axe"]
        if one["impact"] in ("serious", "critical")
    ]
