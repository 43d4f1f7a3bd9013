"""`python -m tools.readers list | install | check | report`: real readers of what onnxq writes."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from tools.bench.results import markdown_table
from tools.readers.catalogue import READERS, Reader
from tools.readers.environments import (
    FOLDER_VARIABLE,
    ReaderError,
    clean_variables,
    install,
    python_of,
    readers_folder,
    state,
)
from tools.readers.report import report


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tools.readers", description=__doc__)
    commands = parser.add_subparsers(dest="what", required=True)
    commands.add_parser("list", help="the readers, and which of them are installed")

    installing = commands.add_parser("install", help="make the environments of readers")
    installing.add_argument("names", nargs="*", metavar="NAME")
    installing.add_argument("--all", action="store_true", help="all of them")

    checking = commands.add_parser("check", help="put files before a reader; the last line is its answer as JSON")
    checking.add_argument("name", metavar="NAME")
    checking.add_argument("arguments", nargs=argparse.REMAINDER, help="what its check.py takes")

    reporting = commands.add_parser("report", help="run the tests of all readers, make the table of docs/backends.md")
    reporting.add_argument("--results", type=Path, help="keep the figures in this folder")
    reporting.add_argument("--no-run", action="store_true", help="only make the table from the figures in --results")
    return parser


def find_reader(name: str) -> Reader:
    if name in READERS:
        return READERS[name]
    close = get_close_matches(name, READERS, n=1)
    meant = f" Did you mean '{close[0]}'?" if close else ""
    raise ReaderError(f"There is no reader '{name}'.{meant} Readers: {', '.join(READERS)}")


def show_list() -> None:
    readers = readers_folder()
    print(f"In {readers} (set {FOLDER_VARIABLE} for another folder):\n")
    rows = [
        {
            "name": reader.name,
            "package": f"{reader.package} {reader.version()}",
            "Python": reader.python or "any",
            "state": state(reader, readers),
            "reads": reader.reads,
        }
        for reader in READERS.values()
    ]
    print(markdown_table(rows), end="")


def install_readers(names: Sequence[str]) -> bool:
    """Install each reader; one that fails does not keep the others from being installed."""
    chosen = [find_reader(name) for name in names]  # all names are checked before the first download
    complete = True
    for reader in chosen:
        try:
            made = install(reader, readers_folder())
        except ReaderError as error:
            print(f"{reader.name}: {error}", file=sys.stderr)
            complete = False
        else:
            print(f"{reader.name}: {'installed' if made else 'is there already'}", flush=True)
    return complete


def check_files(name: str, arguments: Sequence[str]) -> int:
    reader = find_reader(name)
    found = state(reader, readers_folder())
    if found != "ready":
        raise ReaderError(f"the environment of '{name}' is not ready ({found}): python -m tools.readers install {name}")
    command = [str(python_of(readers_folder() / name)), str(reader.check), *arguments]
    repository = {"PYTHONPATH": str(Path(__file__).resolve().parents[2])} if reader.runs_onnxq else {}
    return subprocess.run(command, env=clean_variables() | repository).returncode


def main(arguments: Sequence[str]) -> int:
    """0, or 1 where something failed that was asked for rightly, or 2 where the question itself is wrong."""
    parser = make_parser()
    given = parser.parse_args(arguments)
    try:
        if given.what == "list":
            show_list()
        elif given.what == "install":
            if bool(given.names) == given.all:
                parser.error("give the names of readers, or --all")
            return 0 if install_readers(given.names or list(READERS)) else 1
        elif given.what == "check":
            return check_files(given.name, given.arguments)
        else:
            if given.no_run and given.results is None:
                parser.error("--no-run needs --results")
            report(given.results, run=not given.no_run)
    except ReaderError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
