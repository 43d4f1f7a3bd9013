"""Makes the environments of the readers: all or nothing, and nothing twice.

An environment is built under another name and moved into place when it works. The file INSTALLED in it holds the pins
it was made from; without that file, or with other pins, it does not count.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools.readers.catalogue import NPM_FILE, Reader, requirements

INSTALLED = "onnxq-reader.txt"
FOLDER_VARIABLE = "ONNXQ_READERS"


class ReaderError(Exception):
    """A reader cannot be installed or used; the text says why and what to do."""


def readers_folder(environment: Mapping[str, str] = os.environ) -> Path:
    return Path(environment.get(FOLDER_VARIABLE) or "~/.cache/onnxq/readers").expanduser().absolute()


def python_of(folder: Path) -> Path:
    return folder / "bin" / "python"


def state(reader: Reader, readers: Path) -> str:
    """'ready', 'absent', 'incomplete' or 'other pins'."""
    folder = readers / reader.name
    if not folder.exists():
        return "absent"
    installed = folder / INSTALLED
    if not installed.exists():
        return "incomplete"
    return "ready" if installed.read_text(encoding="utf-8") == reader.pins() else "other pins"


def install(reader: Reader, readers: Path) -> bool:
    """Make the environment of a reader and return True, or False if it was there already."""
    if state(reader, readers) == "ready":
        return False
    readers.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(readers / f".{reader.name}.lock"):
        if state(reader, readers) == "ready":  # another process has made it meanwhile
            return False
        _install(reader, readers)
    return True


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Wait until no other process holds the lock; the system frees it when its holder ends, however that happens."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _install(reader: Reader, readers: Path) -> None:
    folder, partial = readers / reader.name, readers / f"{reader.name}.partial"
    remove(partial)  # what an interrupted installation left behind
    try:
        _build(reader, partial)
        _point_scripts_to(folder, partial)
        (partial / INSTALLED).write_text(reader.pins(), encoding="utf-8")
    except BaseException:
        remove(partial)
        raise
    old = readers / f"{reader.name}.old"
    remove(old)
    if folder.exists():
        folder.rename(old)
    partial.rename(folder)
    remove(old)


def remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _build(reader: Reader, folder: Path) -> None:
    venv = [find_python(reader.python), "-m", "venv", "--prompt", reader.name, str(folder)]
    _run(venv, f"making an environment for '{reader.name}'")
    for pins in reader.pin_files():
        if pins.name == NPM_FILE:
            _install_from_npm(folder, pins)
            continue
        alone = ["--no-deps"] if pins.name == "without_dependencies.txt" else []
        # Compiling all of torch takes longer than anything else; Python compiles what is imported.
        options = ["--quiet", "--disable-pip-version-check", "--no-compile", *alone]
        pip = [str(python_of(folder)), "-m", "pip", "install", *options, "-r", str(pins)]
        _run(pip, f"installing '{reader.name}' from {pins}")
    for repair in reader.repairs:
        repair(folder)
    if reader.module is not None:
        _run([str(python_of(folder)), "-c", f"import {reader.module}"], f"importing {reader.module}")


def _install_from_npm(folder: Path, pins: Path) -> None:
    """Packages of npm beside the virtual environment; their scripts, which download more, are not run."""
    wanted = [line.replace("==", "@") for line in requirements(pins)]
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--loglevel=error"]
    if shutil.which("npm") is None:
        raise ReaderError(f"npm is needed for {pins} and was not found on PATH: install node and npm")
    _run(["npm", "install", *options, "--prefix", str(folder), *wanted], f"installing from {pins}")


def _run(command: Sequence[str], doing: str) -> None:
    done = subprocess.run(command, env=clean_variables(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        last = "\n".join(done.stderr.strip().splitlines()[-8:])
        raise ReaderError(f"{doing} failed with exit code {done.returncode}:\n{last}")


def clean_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables for a process of a reader: packages of this environment or of the user must not leak into it."""
    leaking = {"PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV"}
    return {name: value for name, value in environment.items() if name not in leaking} | {"PYTHONNOUSERSITE": "1"}


def _point_scripts_to(folder: Path, partial: Path) -> None:
    """Let the scripts in an environment name the place that it is going to be moved to."""
    for script in (partial / "bin").iterdir():
        content = script.read_bytes() if not script.is_symlink() else b""
        if os.fsencode(partial) in content and not content.startswith(b"\x7fELF"):
            script.write_bytes(content.replace(os.fsencode(partial), os.fsencode(folder)))


def find_python(version: str | None) -> str:
    """An interpreter of a version such as '3.10', from PATH or from pyenv; None is the one that runs this."""
    if version is None:
        return sys.executable
    for candidate in _candidates(version):
        asked = [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        answer = subprocess.run(asked, capture_output=True, text=True)  # a shim of pyenv may lead nowhere
        if answer.stdout.strip() == version:
            return candidate
    raise ReaderError(
        f"Python {version} is needed and was not found as python{version} on PATH or in pyenv; "
        f"install it (for example: pyenv install {version}) and try again"
    )


def _candidates(version: str) -> Iterator[str]:
    on_path = shutil.which(f"python{version}")
    if on_path:
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser()
    pattern = re.compile(re.escape(version) + r"(\.\d+)?$")
    for folder in sorted(pyenv.glob("versions/*"), reverse=True):
        if pattern.match(folder.name) and (folder / "bin" / "python").exists():
            yield str(folder / "bin" / "python")
