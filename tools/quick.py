"""`make quick`: the tests of what was touched since the last commit, in about a minute.

Touched are the files that git sees as changed or new; with none, those of the last commit. A module is tested by the
test files that have its name or import it and by the folder of its package; a test file by itself; a page by the test
of its code and links. What has not begun when the time is up is skipped, and counted as such.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
SECONDS = 60
EVERYWHERE = ("tests/test_import.py", "tests/test_layers.py")
"""What any change of code can break."""


def touched() -> list[str]:
    """Paths of the files that differ from the last commit; of the last commit itself where none does."""
    changed = _git("diff", "--name-only", "HEAD") + _git("ls-files", "--others", "--exclude-standard")
    return changed or _git("show", "--name-only", "--format=", "HEAD")


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if line]


def nearest_tests(paths: Iterable[str], root: Path = ROOT) -> list[str]:
    """Files and folders of tests for these paths, those that are nearest first."""
    files = sorted(path for path in root.glob("tests/**/test_*.py") if "readers" not in path.parts)
    near: dict[str, None] = {}
    folders: dict[str, None] = {}
    for path in map(Path, paths):
        if path.parts[0] == "tests" and path.suffix == ".py" and (root / path).exists():
            near.update(dict.fromkeys(_of_a_test_file(path, files, root)))
        elif path.parts[0] in ("onnxq", "tools") and path.suffix == ".py":
            mirrored = Path("tests", *path.parts[1:-1]) if path.parts[0] == "onnxq" else Path("tests/tools")
            named = (root / mirrored).glob(f"test_{path.stem}*.py")
            near.update(dict.fromkeys(str(file.relative_to(root)) for file in sorted(named)))
            near.update(dict.fromkeys(_that_import(_module(path), files, root)))
            if mirrored != Path("tests") and (root / mirrored).is_dir():
                folders[str(mirrored)] = None
        elif path.suffix == ".md":
            near["tests/examples/test_documents.py"] = None
    if near or folders:
        folders.update(dict.fromkeys(EVERYWHERE))
    return [*near, *(folder for folder in folders if folder not in near)]


def _of_a_test_file(path: Path, files: Iterable[Path], root: Path) -> list[str]:
    """The file itself, or for one that tests share, those that import it."""
    if path.name.startswith("test_"):
        return [str(path)]
    return _that_import(_module(path), files, root)


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _that_import(module: str, files: Iterable[Path], root: Path) -> list[str]:
    """Test files with an import of the module: `import a.b`, `from a.b import c` or `from a import b`."""
    package, _, name = module.rpartition(".")
    ways = (rf"import {re.escape(module)}\b", rf"from {re.escape(module)} import")
    if package:
        ways += (rf"from {re.escape(package)} import .*\b{name}\b",)
    pattern = re.compile(rf"^\s*({'|'.join(ways)})", re.MULTILINE)
    return [str(file.relative_to(root)) for file in files if pattern.search(file.read_text(encoding="utf-8"))]


def main() -> int:
    paths = touched()
    tests = nearest_tests(paths)
    if not tests:
        print(f"nothing that is tested was touched: {', '.join(paths) or 'no file at all'}")
        return 0
    print(f"for {len(paths)} touched files: {' '.join(tests)}", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", f"--most-seconds={SECONDS}", *tests]
    return subprocess.run(command, cwd=ROOT, env=os.environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
