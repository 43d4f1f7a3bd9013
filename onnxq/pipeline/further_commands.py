"""Commands that go on from a run, to copy: of the terminal and of the page, from the values of report.json."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from onnxq.json_file import JsonMapping
from onnxq.pipeline.artifacts import CONFIG, FLOAT_MODEL


def diagnose_command(report: JsonMapping, model: str, data: str | None) -> str:
    """Asks for the cause of a low result: of the folder of a run, with the float model where it is not in there.

    A run that names no files, as those of early versions do, is done again for its target.
    """
    samples = _samples(data)
    files = [Path(path) for path in report.get("files", ())]
    if not files:
        return f"onnxq diagnose {quote(model)} -b {quote(str(report['backend']))}{samples}"
    beside = any(path.name.endswith(FLOAT_MODEL) for path in files)
    given = "" if beside else f" --float {quote(model)}"
    return f"onnxq diagnose {quote(str(files[0].parent))}{given}{samples}"


def quantize_again_command(report: JsonMapping, model: str, data: str | None, settings: str | None = None) -> str:
    """The run once more, with all of its settings or with those of the file `settings`; options may follow it."""
    own = next((str(path) for path in report.get("files", ()) if Path(path).name == CONFIG), None)
    given = settings or own
    how = f"-b {quote(str(report['backend']))}" if given is None else f"-c {quote(given)}"
    return f"onnxq quantize {quote(model)} {how}{_samples(data)} -o FOLDER"


def folder_of(report: JsonMapping) -> str:
    """The folder of a run as it was named, quoted; a word in its place where a report names no files."""
    return next((quote(str(Path(path).parent)) for path in report.get("files", ())), "FOLDER")


def bench_command(report: JsonMapping, model: str, data: str | None) -> str:
    """Times both models, layer by layer, and puts the times on the page of the run."""
    return f"onnxq bench {quote(model)} {folder_of(report)}{_samples(data)}"


def report_command(report: JsonMapping, data: str | None) -> str:
    """Draws the page of a run again; with data, also with what takes runs of the models."""
    return f"onnxq report {folder_of(report)}{_samples(data)}"


def given_to(report: JsonMapping) -> tuple[str, str]:
    """The model and the data of a run as they were named, or words in their place."""
    data = report.get("config", {}).get("given", {}).get("data")
    return str(report.get("model") or "MODEL"), str(data or "DATA")


def _samples(data: str | None) -> str:
    return "" if data is None else f" -d {quote(data)}"
