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


def _samples(data: str | None) -> str:
    return "" if data is None else f" -d {quote(data)}"
