"""Builds the site: `python -m tools.site`, which `make docs` runs with the extra `docs` installed.

The source is staged in build/site-source (pages, reference, gallery), and MkDocs writes site/<version>/ from it. A
warning of MkDocs (a link or an anchor that leads nowhere, a page that the navigation misses) fails the build, and what
an earlier build wrote stays.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools.site.gallery import DONE, RunFailed, run_exhibits, stage_gallery
from tools.site.pages import BrokenLink, stage_pages
from tools.site.reference import stage_reference
from tools.site.requests import foreign_requests
from tools.site.versions import NAME, version_of, write_version_files

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path("build") / "site-source"
THEME_ASSETS = Path(__file__).with_name("theme") / "assets"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.site", description=__doc__)
    parser.add_argument("-o", "--out", type=Path, default=ROOT / "site", help="folder with all versions (site)")
    parser.add_argument("--name", help="name of this version (dev, or the newest release of CHANGELOG.md)")
    parser.add_argument("--keep-gallery", action="store_true", help="take the runs of the build before")
    arguments = parser.parse_args()
    name = arguments.name or version_of(ROOT)
    if not NAME.match(name):
        print(f"{name!r} cannot be the name of a folder with a version", file=sys.stderr)
        return 2
    try:
        stage(ROOT / SOURCE, keep_gallery=arguments.keep_gallery)
    except (BrokenLink, RunFailed) as error:
        print(error, file=sys.stderr)
        return 1
    return build(ROOT / SOURCE, arguments.out.resolve(), name)


def stage(source: Path, *, keep_gallery: bool = False) -> None:
    """Everything that MkDocs reads, in a fresh folder."""
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    stage_pages(ROOT, source)
    stage_reference(source)
    shutil.copytree(THEME_ASSETS, source / "assets")
    runs = source.with_name("site-runs")
    if not (keep_gallery and (runs / DONE).is_file()):
        run_exhibits(ROOT, runs)
    stage_gallery(runs, source)


def build(source: Path, out: Path, name: str) -> int:
    """Let MkDocs build into a temporary folder, check it, and put it in the place of the version."""
    fresh = source.with_name("site-fresh")
    shutil.rmtree(fresh, ignore_errors=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SITE_VERSION": name, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", "mkdocs.yml", "-d", str(fresh)]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    if done.returncode != 0:
        return 1
    foreign = foreign_requests(fresh)
    for line in foreign:
        print(line, file=sys.stderr)
    if foreign:
        return 1
    place = out / name
    out.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(place, ignore_errors=True)
    shutil.move(fresh, place)
    versions = write_version_files(out)
    print(f"open {place / 'index.html'} (versions: {', '.join(versions)})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
