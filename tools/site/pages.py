"""Which file of the repository becomes which page of the site, with links that lead there.

The documents are written to be read in the repository: links name files and folders relative to the document. The site
has them in a layout of its own, so that every link is looked up and written anew. A file that is linked and is no
document (a script of an example, a configuration) becomes a page with its text, a picture or a schema is copied.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

COPIED = frozenset({".svg", ".png", ".json"})
"""Files that a browser shows as they are."""

AT_THE_TOP = {
    "README.md": "index.md",
    "docs/README.md": "contents.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "SECURITY.md": "security.md",
}

FENCED = re.compile(r"^```.*?^```[^\n]*$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?://|#)([^)\s]+)\)")
NAMED_BY_PATH = re.compile(r"\[(?P<path>[\w./-]+\.md)(?=\]\((?P<target>[^)#\s]+))")
"""A link whose text is the path of a document, as in the repository: the site shows the title."""


class BrokenLink(Exception):
    """A document links to something that is not there."""


def find_pages(root: Path) -> dict[str, str]:
    """Path of a document in the repository -> its path in the source of the site."""
    pages = {path: page for path, page in AT_THE_TOP.items() if (root / path).is_file()}
    for path in sorted((root / "docs").rglob("*.md")):
        shown = path.relative_to(root).as_posix()
        pages.setdefault(shown, _as_index(path.relative_to(root / "docs")))
    for path in sorted([*(root / "examples").rglob("README.md"), *(root / "examples" / "notebooks").glob("*.ipynb")]):
        shown = path.relative_to(root)
        pages[shown.as_posix()] = _as_index(shown.with_suffix(".md"))
    return pages


def _as_index(path: Path) -> str:
    return (path.with_name("index.md") if path.name == "README.md" else path).as_posix()


def stage_pages(root: Path, source: Path) -> dict[str, str]:
    """Write every document of the repository into the folder `source`; gives back where each is, as `find_pages`."""
    pages = find_pages(root)
    titles = {path: _title(root / path) for path in pages if path.endswith(".md")}
    linked: dict[str, str] = {}
    for path, page in pages.items():
        text = (root / path).read_text(encoding="utf-8")
        if path.endswith(".ipynb"):
            text = notebook_as_markdown(text, PurePosixPath(path).name)
        text = with_titles(text, path, titles)
        text, others = with_links_of_the_site(text, path, pages, root)
        linked |= others
        _write(source / page, text)
    for path, page in linked.items():
        if page.endswith(".md"):
            _write(source / page, file_as_markdown(root / path, path))
        else:
            (source / page).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / path, source / page)
    return pages


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _title(document: Path) -> str:
    heading = re.search(r"^# (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return heading[1] if heading else document.stem


def with_titles(text: str, document: str, titles: Mapping[str, str]) -> str:
    """The text with links named by the titles of pages where they are named by paths of files."""

    def titled(match: re.Match[str]) -> str:
        wanted = os.path.normpath(os.path.join(os.path.dirname(document), match["target"]))
        return f"[{titles.get(wanted, match['path'])}"

    return NAMED_BY_PATH.sub(titled, text)


def with_links_of_the_site(
    text: str, document: str, pages: Mapping[str, str], root: Path
) -> tuple[str, dict[str, str]]:
    """The text with links between pages of the site, and the files that it links which are no documents."""
    here = PurePosixPath(pages[document]).parent
    linked: dict[str, str] = {}

    def to_the_site(match: re.Match[str]) -> str:
        path, hash_sign, heading = match[1].partition("#")
        wanted = os.path.normpath(os.path.join(os.path.dirname(document), path))
        if (root / wanted).is_dir():
            wanted += "/README.md"
        if wanted not in pages:
            if wanted.startswith("..") or not (root / wanted).is_file():
                raise BrokenLink(f"{document} links to {match[1]}, which no page of the site is made of")
            linked[wanted] = _place_of_a_file(wanted)
        target = pages.get(wanted) or linked[wanted]
        return f"]({os.path.relpath(target, here)}{hash_sign}{heading})"

    parts = []
    end = 0
    for block in FENCED.finditer(text):  # code is left as it is
        parts += [LINK.sub(to_the_site, text[end : block.start()]), block[0]]
        end = block.end()
    parts.append(LINK.sub(to_the_site, text[end:]))
    return "".join(parts), linked


def _place_of_a_file(path: str) -> str:
    if PurePosixPath(path).suffix in COPIED:
        return path.removeprefix("docs/")
    return f"files/{path}.md"


def file_as_markdown(path: Path, shown: str) -> str:
    """A page with the text of a file."""
    language = {".py": "python", ".sh": "sh", ".toml": "toml", ".yaml": "yaml"}.get(path.suffix, "text")
    return f"# {shown}\n\n````{language}\n{path.read_text(encoding='utf-8').rstrip()}\n````\n"


def notebook_as_markdown(text: str, name: str) -> str:
    """Texts and code of a notebook, without what its cells print."""
    parts = []
    for cell in json.loads(text)["cells"]:
        inside = "".join(cell["source"]).rstrip()
        parts.append(inside if cell["cell_type"] == "markdown" else f"```python\n{inside}\n```")
    parts.append(f"The notebook is `examples/notebooks/{name}` of the repository.")
    return "\n\n".join(parts) + "\n"
