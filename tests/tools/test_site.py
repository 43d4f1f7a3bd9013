"""The site of the documentation: all pages in the navigation, links that find them, nothing loaded from elsewhere."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

from tests.examples.runnable import ROOT
from tools.site.definition_lists import with_definition_lists
from tools.site.gallery import EXHIBITS, Exhibit, RunFailed, run_exhibits, stage_gallery
from tools.site.pages import BrokenLink, find_pages, notebook_as_markdown, stage_pages
from tools.site.reference import PAGES
from tools.site.requests import foreign_requests
from tools.site.versions import version_of, versions_in, write_version_files


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml without its functions."""


_Loader.add_multi_constructor("", lambda loader, suffix, node: None)


@pytest.fixture(scope="module")
def configuration() -> dict[str, object]:
    return yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), _Loader)


def leaves(nav: object) -> Iterator[str]:
    """The pages of a navigation."""
    if isinstance(nav, str):
        yield nav
    else:
        for item in nav.values() if isinstance(nav, dict) else nav:
            yield from leaves(item)


def test_the_navigation_has_every_page_once(configuration: dict[str, object]) -> None:
    wanted = {
        *find_pages(ROOT).values(),
        "gallery/index.md",
        "api/index.md",
        *(f"api/{page.name}.md" for page in PAGES),
    }
    elsewhere = str(configuration["not_in_nav"]).split()
    wanted = {page for page in wanted if not any(fnmatch(f"/{page}", pattern) for pattern in elsewhere)}
    found = list(leaves(configuration["nav"]))
    assert sorted(found) == sorted(wanted)


def test_decisions_that_the_navigation_leaves_out_are_on_their_page() -> None:
    listed = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in (ROOT / "docs" / "decisions").glob("0*.md") if f"({path.name})" not in listed] == []


def test_the_site_asks_no_other_host(configuration: dict[str, object]) -> None:
    theme, plugins = configuration["theme"], configuration["plugins"]
    assert isinstance(theme, dict)
    assert isinstance(plugins, list)
    assert theme["font"] is False
    assert "offline" in plugins
    shim = configuration["extra"]["polyfills"]  # type: ignore[index]
    assert shim == ["assets/iframe-worker.js"], "without this name the plugin offline loads a polyfill from unpkg.com"


def test_every_link_of_the_documents_finds_its_page_on_the_site(tmp_path: Path) -> None:
    pages = stage_pages(ROOT, tmp_path)
    for page in pages.values():
        text = re.sub(r"^```.*?^```", "", (tmp_path / page).read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        for target in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", text):
            assert (tmp_path / page).parent.joinpath(target).is_file(), f"{page} -> {target}"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a document, an example and a script."""
    root = tmp_path / "repository"
    for path, text in {
        "README.md": "# Tool\n\n[docs/use.md](docs/use.md#first) and [examples](examples)\n",
        "docs/use.md": "# Using it\n\n[top](../README.md), [code](../examples/one/run.py)\n\n"
        "```md\n[x](nowhere.md)\n```\n",
        "examples/README.md": "# Examples\n\n[one](one)\n",
        "examples/one/README.md": "# One\n",
        "examples/one/run.py": "print('````')\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def test_links_lead_to_pages_of_the_site_and_have_their_titles(repository: Path, tmp_path: Path) -> None:
    pages = stage_pages(repository, tmp_path / "site")
    assert pages["examples/one/README.md"] == "examples/one/index.md"
    assert "[Using it](use.md#first) and [examples](examples/index.md)" in (tmp_path / "site" / "index.md").read_text()
    use = (tmp_path / "site" / "use.md").read_text()
    assert "[top](index.md), [code](files/examples/one/run.py.md)" in use
    assert "[x](nowhere.md)" in use, "code is left as it is"
    assert "print('````')" in (tmp_path / "site" / "files" / "examples" / "one" / "run.py.md").read_text()


@pytest.mark.parametrize("target", ["gone.md", "../docs", "../../outside.md"])
def test_a_link_to_nothing_stops_the_build(repository: Path, tmp_path: Path, target: str) -> None:
    (tmp_path / "outside.md").touch()
    (repository / "docs" / "bad.md").write_text(f"# Bad\n\n[x]({target})\n")
    with pytest.raises(BrokenLink, match=re.escape(f"docs/bad.md links to {target}")):
        stage_pages(repository, tmp_path / "site")


def test_a_notebook_becomes_its_texts_and_code() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "text"]},
        {"cell_type": "code", "source": ["x = 1\n", "x"], "outputs": [{"text": "1"}]},
    ]
    page = notebook_as_markdown(json.dumps({"cells": cells}), "n.ipynb")
    assert page.startswith("# Title\ntext\n\n```python\nx = 1\nx\n```\n")


def test_tables_of_docstrings_become_definition_lists() -> None:
    text = "About.\n\nsamples        to fit to\nmemory_limit   bytes, where\n               lines go on\n\nMore  text."
    assert with_definition_lists(text) == (
        "About.\n\n`samples`\n:   to fit to\n\n`memory_limit`\n:   bytes, where lines go on\n\n\nMore  text."
    )
    prose = "A sentence that\ngoes on in lines\nof equal length"
    assert with_definition_lists(prose) == prose


def test_versions_are_listed_newest_release_first(tmp_path: Path) -> None:
    for name in ("0.2.0", "dev", "0.10.0", "0.9.1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").touch()
    (tmp_path / "pictures").mkdir()
    assert versions_in(tmp_path) == ["0.10.0", "0.9.1", "0.2.0", "dev"]
    write_version_files(tmp_path)
    assert '["0.10.0", "0.9.1", "0.2.0", "dev"]' in (tmp_path / "versions.js").read_text()
    assert "url=0.10.0/index.html" in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize(
    ("heading", "version"), [("## [0.3.0] - Unreleased", "dev"), ("## [0.3.0] - 2027-01-31", "0.3.0"), ("none", "dev")]
)
def test_the_version_follows_from_the_changelog(tmp_path: Path, heading: str, version: str) -> None:
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n{heading}\n")
    assert version_of(tmp_path) == version


@pytest.mark.parametrize(
    "loaded",
    [
        '<script src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/a.css">',
        '<link rel="preconnect" href="https://fonts.example">',
        '<img src="https://badge.example/x.svg">',
        '<p style="background: url(https://x.example/a.png)">',
    ],
)
def test_a_page_that_loads_from_another_host_is_found(tmp_path: Path, loaded: str) -> None:
    (tmp_path / "index.html").write_text(f'<a href="https://papers.example">a paper</a><img src="own.svg">{loaded}')
    assert len(foreign_requests(tmp_path)) == 1
    (tmp_path / "index.html").write_text("<p>")
    (tmp_path / "site.css").write_text("@import 'https://fonts.example/a.css'; a { background: url(own.png) }")
    assert foreign_requests(tmp_path) == ["site.css loads https://fonts.example/a.css"]


def test_the_citation_has_the_version_of_the_package() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (citation["version"], citation["license"]) == (package["version"], package["license"])
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors", "type"} <= set(citation)


def test_hints_and_documents_name_no_package_that_pip_would_not_find() -> None:
    paths = [*(ROOT / "onnxq").rglob("*.py"), *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    paths += (ROOT / "examples").rglob("*.md")
    wrong = re.compile(r"(pip3? install|pipx install|uvx?( add| pip install)?)( -U| --upgrade)? [\"']?onnxq\b")
    extras = re.compile(r"\bonnxq\[[a-z]+\](?!,)")
    found = [(str(path), match[0]) for path in paths for match in wrong.finditer(path.read_text(encoding="utf-8"))]
    found += [(str(path), match[0]) for path in paths for match in extras.finditer(path.read_text(encoding="utf-8"))]
    assert found == []


def test_a_model_that_cannot_be_had_is_left_out_of_the_gallery(tmp_path: Path) -> None:
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "make_data.py").write_text("")
    here = Exhibit("here", "Here", "A page.", ("echo page > here.html",), "here.html", None)
    gone = Exhibit("gone", "Gone", "No page.", ("exit 3",), "gone.html", None, package="nowhere")
    run_exhibits(tmp_path, tmp_path / "runs", (here, gone))
    stage_gallery(tmp_path / "runs", tmp_path / "source", (here, gone))
    assert sorted(path.name for path in (tmp_path / "source" / "gallery").iterdir()) == ["here.html", "index.md"]
    for broken in (replace(gone, package=None), replace(gone, commands=("exit 1",))):
        with pytest.raises(RunFailed):
            run_exhibits(tmp_path, tmp_path / "runs", (broken,))


@pytest.mark.slow
def test_the_gallery_is_made_of_runs(tmp_path: Path) -> None:
    first = EXHIBITS[:1]
    run_exhibits(ROOT, tmp_path / "runs", first)
    stage_gallery(tmp_path / "runs", tmp_path / "source", first)
    page = (tmp_path / "source" / "gallery" / "index.md").read_text()
    assert re.search(r"\d\d\.\d dB on `logits`, \d+ % of the nodes", page)
    assert "verdict" in (tmp_path / "source" / "gallery" / "defaults.html").read_text(encoding="utf-8").lower()


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None, reason="needs the extra docs: `make docs` builds the site"
)
def test_the_site_builds_without_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tools.site import __main__ as command

    monkeypatch.setattr("sys.argv", ["tools.site", "--out", str(tmp_path), "--name", "1.0", "--keep-gallery"])
    assert command.main() == 0
    assert versions_in(tmp_path) == ["1.0"]
