"""Versions side by side: `site/<version>/` is a whole site, and what stands beside them leads to the newest.

    site/index.html      leads to the newest release, or to the only version there is
    site/versions.js     the versions, for the menu in the header of every page, also of pages built earlier
    site/0.1.0/ ...

Everything is a file, so that any static host serves it, and a folder on a disk works too: versions.js is a script and
no JSON file, because a page from a disk may not fetch files.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

RELEASE = re.compile(r"\d+(\.\d+)*$")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*$")


def versions_in(site: Path) -> list[str]:
    """Names of the folders that hold a version, the newest release first, others (`dev`) after them."""
    found = [path.parent.name for path in site.glob("*/index.html")]
    releases = [name for name in found if RELEASE.match(name)]
    releases.sort(key=lambda name: tuple(int(part) for part in name.split(".")), reverse=True)
    return releases + sorted(set(found) - set(releases))


def write_version_files(site: Path) -> list[str]:
    """Write index.html and versions.js for the versions that are there; gives them back."""
    versions = versions_in(site)
    (site / "versions.js").write_text(f"window.siteVersions = {json.dumps(versions)};\n", encoding="utf-8")
    newest = f"{versions[0]}/index.html"
    (site / "index.html").write_text(
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>onnxq</title>\n'
        f'<meta http-equiv="refresh" content="0; url={newest}">\n<a href="{newest}">onnxq {versions[0]}</a>\n</html>\n',
        encoding="utf-8",
    )
    return versions


def version_of(root: Path) -> str:
    """`dev` while the newest section of the changelog is unreleased, else the version that it names."""
    heading = re.search(r"^## \[([^\]]+)\](.*)$", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    if heading is None or "unreleased" in heading[0].lower():
        return "dev"
    return heading[1]
