"""The wheel: built from this tree, installed into empty environments, and run outside of the repository.

    python -m tools.wheel build [--out dist]            the wheel, with the part in C for every Python from 3.11 on
    python -m tools.wheel check [--python 3.11 3.13]    installs the wheel in --out, and runs `onnxq demo` with it

The sources are copied first: what an earlier build has left in build/ gets into no wheel. Interpreters are looked for
on PATH and in pyenv; one that is not there fails the check.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.readers.environments import ReaderError, clean_variables, find_python, python_of

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "onnxq")
PYTHONS = ("3.11", "3.13")
TAG = "cp311-abi3-"
"""Of a wheel with compiled parts that every Python from 3.11 on can load."""

PROOF = (
    "import onnxq, pathlib, onnxq.numerics._rounding, onnxq.observers._gains; "
    "import onnxq.observers.statistics._counting as counting; "
    "print(onnxq.__version__, pathlib.Path(onnxq.__file__).parent, counting.__file__)"
)


class WheelError(Exception):
    """The wheel cannot be built or does not work; the text says why."""


def build(out: Path) -> Path:
    """The wheel of this tree; an older one of the same version is replaced."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "onnxq"
        copy.mkdir()
        for name in SOURCES:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
            else:
                shutil.copy(source, copy / name)
        made = Path(place) / "made"
        run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(made), str(copy)])
        (wheel,) = made.glob("*.whl")
        if TAG not in wheel.name:
            raise WheelError(f"{wheel.name} has no part in C ({TAG}): is there a compiler?")
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, out / wheel.name))


def check(wheel: Path, python: str) -> str:
    """Install the wheel into an empty environment of a Python, run the demo there, and say what was imported."""
    interpreter = find_python(python)
    with tempfile.TemporaryDirectory() as place:
        environment = Path(place) / "environment"
        run([interpreter, "-m", "venv", str(environment)])
        pip = [str(python_of(environment)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run([*pip, "-c", str(ROOT / "constraints.txt"), str(wheel)])
        said = run([str(python_of(environment)), "-c", PROOF], cwd=Path(place)).strip()
        if str(environment) not in said.split()[1]:
            raise WheelError(f"Python {python} has imported {said.split()[1]}, which is not what was installed")
        run([str(environment / "bin" / "onnxq"), "demo"], cwd=Path(place))
        if not (Path(place) / "onnxq-demo" / "report.json").is_file():
            raise WheelError(f"`onnxq demo` of Python {python} has left no report")
        return said.split()[0]


def run(command: Sequence[str], cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=clean_variables(), capture_output=True, text=True)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        raise WheelError(f"{' '.join(command[:4])} ... ended with exit code {done.returncode}:\n{last}")
    return done.stdout


def newest(out: Path) -> Path:
    found = sorted(out.glob("onnxq-*.whl"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise WheelError(f"there is no wheel in {out}: python -m tools.wheel build --out {out}")
    return found[-1]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools.wheel", description=__doc__)
    parser.add_argument("what", choices=("build", "check"))
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the wheel")
    parser.add_argument("--python", nargs="+", default=PYTHONS, metavar="VERSION")
    given = parser.parse_args(arguments)
    try:
        if given.what == "build":
            print(build(given.out))
            return 0
        wheel = newest(given.out)
        for python in given.python:
            print(f"{wheel.name}: {check(wheel, python)} works with Python {python}", flush=True)
    except (WheelError, ReaderError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
