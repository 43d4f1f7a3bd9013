"""The documents of a finished run, read from its folder."""

from __future__ import annotations

from pathlib import Path

from onnxq.cli.artifacts import read_plan, read_qparams
from onnxq.cli.schemas import ReportSchema
from onnxq.errors import ConfigError
from onnxq.json_file import read_object, validated
from onnxq.output_folder import read_together
from onnxq.page.content import FRONT, HELD, Run
from onnxq.pipeline.artifacts import REPORT


def refuse_no_run(folder: Path, *, search: bool = False) -> None:
    """ConfigError where a folder is none, or holds no run; with `search` that of a search is one too."""
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder: give the one that 'onnxq quantize -o' has written to")
    if (folder / REPORT).is_file():
        return
    if not any((folder / name).is_file() for name in (FRONT, HELD)):
        other, or_search = f"no {REPORT}", ""
        if search:
            other, or_search = f"neither {REPORT} nor {FRONT} or {HELD}", ", or of a search"
        raise ConfigError(f"{folder} holds {other}: give the folder of a run{or_search}")
    if not search:
        raise ConfigError(
            f"{folder} is the folder of a search, which writes no model: give the folder of 'onnxq quantize' with its "
            "config.json"
        )


def read_run(folder: Path) -> Run:
    """Report, configuration, plan and parameters of one run, all of the same delivery."""

    def read() -> Run:
        document = read_object(folder / REPORT, "report")
        validated(ReportSchema, document, str(folder / REPORT))
        config = folder / "config.json"
        settings = read_object(config, "configuration") if config.is_file() else {}
        return Run(document, settings, read_plan(folder), read_qparams(folder), folder)

    return read_together(folder, read)
