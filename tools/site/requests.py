"""What a page would load from another host when it is opened: scripts, styles, pictures, frames and fonts.

Links that a reader may follow are no requests.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

LOADED = {
    ("script", "src"),
    ("img", "src"),
    ("iframe", "src"),
    ("source", "src"),
    ("video", "src"),
    ("audio", "src"),
    ("embed", "src"),
    ("object", "data"),
}
LOADED_LINKS = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload", "manifest"}
FOREIGN = re.compile(r"(https?:)?//", re.IGNORECASE)
FOREIGN_STYLE = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])((?:https?:)?//[^'\")\s]+)", re.IGNORECASE)


class _Loads(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.addresses += [value for name, value in values.items() if (tag, name) in LOADED]
        if tag == "link" and LOADED_LINKS & set(values.get("rel", "").lower().split()):
            self.addresses.append(values.get("href", ""))
        self.addresses += FOREIGN_STYLE.findall(values.get("style", ""))


def foreign_requests(site: Path) -> list[str]:
    """One line for each address of another host that a page or style loads."""
    found = []
    for path in sorted([*site.rglob("*.html"), *site.rglob("*.css")]):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".css":
            addresses = FOREIGN_STYLE.findall(text)
        else:
            loads = _Loads()
            loads.feed(text)
            addresses = [address for address in loads.addresses if FOREIGN.match(address)]
        found += [f"{path.relative_to(site)} loads {address}" for address in addresses]
    return found
