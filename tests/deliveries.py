"""Files delivered into a folder as a run does it, and what is there then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from onnxq.output_folder import OutputFolder, claim, staging


def fill(folder: Path, **texts: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text)


def state(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir()) if path.is_file()}


def deliver(
    folder: Path | OutputFolder,
    inputs: tuple[Path, ...] = (),
    then: Callable[[], object] = lambda: None,
    only: str | None = None,
    **texts: str,
) -> None:
    with claim(folder, only) as output, staging(output, inputs) as stage:
        fill(stage, **texts)
        then()


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]
