"""`onnxq diagnose`: why a quantized model loses accuracy, and what fixes it, tried before it is offered."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxq.cli import options
from onnxq.cli.console import print_json, print_pairs, print_table, print_warning, say
from onnxq.cli.progress import run_bar

if TYPE_CHECKING:
    from onnxq.config import Config
    from onnxq.diagnose import Diagnosis
    from onnxq.graph import Graph
    from onnxq.progress import Progress
    from onnxq.ptq.method import State
    from onnxq.session.session import Session


@options.with_settings("images config code ranges place samples engine", first="float_model target data")
def diagnose(
    model: Annotated[
        Path,
        typer.Argument(
            help="The float ONNX model, or the folder of a run.", metavar="MODEL|FOLDER", callback=options.settled
        ),
    ],
    *,
    float_model: Annotated[
        Path | None,
        typer.Option("--float", help="The float model of a run's folder.", metavar="MODEL", callback=options.settled),
    ] = None,
    apply: Annotated[
        Path | None,
        typer.Option("--apply", help="Write a configuration with the remedies that pay: .toml, .json.", metavar="FILE"),
    ] = None,
    worst: Annotated[int, typer.Option("--worst", help="Quantizers to show; 0 shows all.", metavar="N", min=0)] = 10,
    given: options.Given,
    passes: options.PassOption = None,
    plugin: options.PluginOption = None,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Find the quantizers that cost most, why they do, and what fixes it.

    Every remedy is tried on samples that nothing was fitted to. --apply writes those that pay into a configuration for
    `onnxq quantize -c`.
    """
    from onnxq.cli.settings import load_plugins, read_settings
    from onnxq.diagnose import diagnose as run
    from onnxq.mixed_precision import Subject

    load_plugins(plugin)
    target = None if apply is None else _configuration_file(apply, model)
    with run_bar("diagnose", quiet=quiet) as progress:
        session, state = (
            _of_folder(model, float_model, given, passes, progress)
            if model.is_dir()
            else (_session(given, model, read_settings(given), passes, progress), None)
        )
        session.open_data(required=True)
        progress.measure_by("noise")
        progress.expect("causes", 0.3)
        progress.expect("remedies", 0.7)
        result = run(Subject(session), state=state)
    for note in result.notes:
        print_warning(note)
    written = None if target is None else _write(target, result)
    if as_json:
        print_json({"backend": result.backend, **result.to_json()})
    elif not quiet:
        _show(result, worst)
    if target is not None:
        say(f"configuration written to {target}" if written else _nothing_to_write(result), quiet=quiet)


def _session(
    given: options.Given, model: Path | Graph, settings: Config, passes: list[str] | None, progress: Progress
) -> Session:
    from onnxq.session.session import open_session

    return open_session(model, backend=given["backend"], config=settings, passes=passes or (), progress=progress)


def _of_folder(
    folder: Path, float_model: Path | None, given: options.Given, passes: list[str] | None, progress: Progress
) -> tuple[Session, State]:
    """The session of a run: its configuration, and the quantized model that its plan and parameters make."""
    from onnxq.cli.artifacts import read_plan, read_qparams
    from onnxq.cli.consistency import check_parameters
    from onnxq.cli.float_model import float_model_in
    from onnxq.cli.planned import planned_session
    from onnxq.cli.settings import read_settings
    from onnxq.errors import ConfigError
    from onnxq.output_folder import read_together
    from onnxq.ptq.method import State

    plan, table = read_together(folder, lambda: (read_plan(folder), read_qparams(folder)))
    recorded = folder / "config.json"
    if not recorded.is_file():
        raise ConfigError(f"{folder} holds no config.json, so it is not the folder of a run: give the model itself")
    settings = read_settings(given, config=recorded)
    # What improvements have left is a float model too: passes leave a graph alone that they have been through.
    found = float_model_in(
        folder,
        plan,
        float_model,
        lambda path: planned_session(path, plan, given["backend"], settings, passes),
    )
    check_parameters(found.prepared.graph, plan, table)
    return _session(given, found.original, settings, passes, progress), State(found.prepared.graph, plan, table)


def _configuration_file(path: Path, model: Path) -> Path:
    from onnxq.cli.artifacts import output_file
    from onnxq.errors import ConfigError

    if path.suffix not in (".toml", ".json"):
        raise ConfigError(f"--apply writes a configuration, a .toml or .json file, got {path}")
    return output_file(path, path.name, model)


def _write(path: Path, result: Diagnosis) -> bool:
    """Write the configuration with the remedies that pay, if there are any."""
    from onnxq.config.toml_text import write_toml
    from onnxq.files import write_json

    values = result.remedied()
    if values is None:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".json":
        write_json(path, values)
    else:
        write_toml(path, values)
    return True


def _nothing_to_write(result: Diagnosis) -> str:
    by_hand = any(trial.pays for trial in result.trials)
    return "no configuration written: " + (
        "what pays is to be done with the data" if by_hand else "nothing that was tried pays"
    )


def _show(result: Diagnosis, worst: int) -> None:
    from onnxq.diagnose.text import cause_text, noise_rows, outcome_text, remedy_lines

    shown = worst or len(result.costly)
    columns = ("quantizer", "role", "format", ">node", ">alone", ">share of the noise")
    print_table(f"what costs most for {result.backend}", columns, noise_rows(result, shown))
    why = [(str(cause.code), f"{cause_text(cause)}; {cause.gain_db:+.1f} dB without it") for cause in result.causes]
    print_pairs("why", why or [("", "no cause was found")])
    tried = [*result.paying, *(trial for trial in result.trials if not trial.pays)]
    rows = [(outcome_text(trial), tuple(remedy_lines(trial.remedy, result.target))) for trial in tried]
    print_table(f"remedies, evaluated on {result.samples} samples", ("worst result", "remedy"), rows)
    if result.combined is not None:
        lines = tuple(remedy_lines(result.combined.remedy, result.target))
        print_pairs("those that pay, together", [(outcome_text(result.combined), lines)])
