"""The page as a file: markup, style, program and data in one text without a single address of the network.

The data is JSON, packed by gzip and written in base64: names of tensors cannot end the element that holds them, and the
page of 10,000 nodes stays small. Browsers unpack it themselves (DecompressionStream: all of them since 2023).
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import re
import zlib
from html import escape
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

from onnxq.errors import SpecError
from onnxq.escapes import one_line
from onnxq.files import replace_file
from onnxq.json_file import JsonMapping, JsonObject, parse_json, read_text

FORM = "onnxq-page"

DATA = "data"
"""The element that holds it."""

SCRIPTS = (
    *("base", "format", "plot", "table", "panel", "model", "details"),
    *("verdict", "layers", "tensors", "weights", "ties", "coverage", "sizes", "methods"),
    *("layout", "graph", "inputs", "files", "settings", "training", "front", "held", "main"),
)
"""The program, in the order in which its parts need each other."""


def page_text(data: JsonMapping, title: str) -> str:
    """The whole page; the same data gives the same bytes."""
    assets = files("onnxq.page") / "assets"
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    packed = base64.b64encode(gzip.compress(text.encode("ascii"), 6, mtime=0)).decode("ascii")
    parts = {
        "title": escape(one_line(title)),
        "style": (assets / "page.css").read_text(encoding="utf-8"),
        "script": "\n".join((assets / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS),
        "data": packed,
    }
    page = (assets / "page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], page)


def write_page(path: Path, data: JsonMapping, title: str) -> None:
    """Write the page whole or not at all."""
    text = page_text(data, title)
    replace_file(path, lambda stream: stream.write(text.encode("utf-8")))


class _Data(HTMLParser):
    """Finds the text of the element that holds the data."""

    text = ""
    _inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = ("id", DATA) in attrs

    def handle_data(self, data: str) -> None:
        self.text += data if self._inside else ""

    def handle_endtag(self, tag: str) -> None:
        self._inside = False


def read_page(path: Path) -> JsonObject:
    """The data of a page; SpecError where the file is none of ours."""
    reader = _Data()
    reader.feed(read_text(path, "page"))
    try:
        data = parse_json(gzip.decompress(base64.b64decode(reader.text, validate=True)))
    except (ValueError, binascii.Error, zlib.error, OSError, EOFError) as error:
        raise SpecError(f"{path}: the data of the page is damaged ({error})") from None
    if not isinstance(data, dict) or data.get("format") != FORM:
        raise SpecError(f"{path} is no page of onnxq: its data is not '{FORM}'")
    return data
