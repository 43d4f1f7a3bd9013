"""Options that several commands share: those of settings are made from their models, the others stand here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from onnxq.cli.log import be_verbose, log_to
from onnxq.config import Config
from onnxq.config.assignments import Assignment, read_assignment, refuse_two_of_a_key
from onnxq.config.option import Option, options_of
from onnxq.config.training import TrainSettings
from onnxq.errors import ConfigError
from onnxq.json_file import JsonMapping
from onnxq.types.dialect import DIALECTS

OPTIONS = {**options_of(Config), **options_of(TrainSettings)}
"""Key -> the option that its model of settings gives it."""


def declared(key: str) -> Any:
    """The option of a key as typer takes it."""
    option = OPTIONS[key]
    return typer.Option(
        *option.names.split(),
        help=option.help,
        metavar=option.metavar,
        show_default=False,
        autocompletion=COMPLETIONS.get(key),
    )


def _names_of(kind: str) -> Callable[[str], list[str]]:
    """What a shell offers for an option whose value is one of a registry."""

    def offered(incomplete: str) -> list[str]:
        from onnxq.observers import OBSERVERS
        from onnxq.ptq.method import IMPROVEMENTS
        from onnxq.targets import BACKENDS

        registry: Any = {"backend": BACKENDS, "improvement": IMPROVEMENTS, "observer": OBSERVERS}[kind]
        return [name for name in registry.names() if name.startswith(incomplete)]

    return offered


COMPLETIONS = {
    "backend": _names_of("backend"),
    "improvements": _names_of("improvement"),
    "observer": _names_of("observer"),
    "weight_observer": _names_of("observer"),
}
"""Key -> how a shell completes its option."""


def settled(path: Path | None) -> Path | None:
    """A file or folder that is read, after what a killed run had begun to deliver there is finished or undone."""
    from onnxq.output_folder import settle

    if path is not None:
        settle(path if path.is_dir() else path.parent)
    return path


ModelArgument = Annotated[
    Path, typer.Argument(metavar="MODEL", help="ONNX model file.", show_default=False, callback=settled)
]
RequiredBackendOption = Annotated[
    str,
    typer.Option(
        "--backend",
        "-b",
        help="Target: a name from 'onnxq list backends', or a backend file.py.",
        autocompletion=COMPLETIONS["backend"],
    ),
]
PlanBackendOption = Annotated[
    str | None,
    typer.Option("--backend", "-b", help="Target, when the plan's own name is not enough: a backend file.py."),
]
DataOption = Annotated[str | None, declared("data")]
PreprocessOption = Annotated[str | None, declared("preprocess")]
RandomOption = Annotated[
    int | None, typer.Option("--random", help="N random samples instead of data, to try things out.", metavar="N")
]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        help="Fix the shape of an input in the model and in random samples, such as x=1,3,320,320. Repeatable.",
        metavar="NAME=SIZES",
    ),
]
SampleShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--shape", help="Shape of an input in random samples, such as x=1,3,320,320. Repeatable.", metavar="NAME=SIZES"
    ),
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="Configuration: .toml, .yaml or .json.", callback=settled)
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Any key of the configuration, over what -c says, such as activation.observer=kl. Repeatable.",
        metavar="KEY=VALUE",
    ),
]
AllowCodeOption = Annotated[
    bool,
    typer.Option(
        "--allow-code", help="Run Python code that a configuration file names: a backend file, a data function."
    ),
]
OtherModelOption = Annotated[
    bool,
    typer.Option("--other-model", help="Take the constants of MODEL although plan and parameters belong to others."),
]
PassOption = Annotated[
    list[str] | None,
    typer.Option("--pass", help="Run this pass after the backend's own. Repeatable.", metavar="NAME"),
]
PluginOption = Annotated[
    list[Path] | None,
    typer.Option("--plugin", help="Python file that registers passes, backends, observers, operators ... Repeatable."),
]
FolderOption = Annotated[Path, typer.Option("--out", "-o", help="Folder for the files.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else there.")]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="A line for every stage with its time.", callback=be_verbose)
]
LogFileOption = Annotated[
    Path | None,
    typer.Option(
        "--log-file",
        help="Add stages, warnings and errors with their times to this file.",
        metavar="FILE",
        callback=log_to,
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Nothing but warnings and errors.")]
StrictOption = Annotated[
    bool,
    typer.Option(
        "--strict", help="Refuse operators without a rule; exit with 1 when there is a warning (files are written)."
    ),
]
StatisticsOption = Annotated[
    Path | None,
    typer.Option("--stats", help="Keep what calibration saw in this .npz file, and use what it holds.", metavar="FILE"),
]
MlflowOption = Annotated[
    bool, typer.Option("--mlflow", help="Log settings, figures and files to MLflow (MLFLOW_TRACKING_URI says where).")
]
FreshOption = Annotated[bool, typer.Option("--fresh", help="Collect statistics anew, whatever their file holds.")]

_FILES: Mapping[str, Mapping[str, object]] = {
    "config": {"config": ConfigOption, "assigned": SetOption},
    "foreign": {
        name: Annotated[
            str | None if dialect.has_names else Path | None,
            typer.Option(f"--{name}", help=dialect.summary, metavar=dialect.argument),
        ]
        for name, dialect in DIALECTS.items()
    },
    "code": {"allow_code": AllowCodeOption},
}
"""Word of `with_settings` -> options about whole configurations, by their parameters."""

OptionValues = Mapping[str, Any]
"""Parameter of a command -> what the command line gives for it, in the type that its option declares."""


@dataclass(frozen=True)
class Given:
    """What the options of a command say about settings.

    assignments   what they give to keys of the configuration, --set included
    training      what they give to settings of training
    foreign       dialect -> the configuration of that tool
    """

    assignments: Sequence[Assignment] = ()
    training: JsonMapping = field(default_factory=dict)
    config: Path | None = None
    foreign: Mapping[str, str | Path] = field(default_factory=dict)
    allow_code: bool = False

    def __getitem__(self, key: str) -> Any:
        """What was given to a key; None where it was not."""
        return next((one.value for one in self.assignments if one.path == (key,)), None)


def with_settings(words: str, first: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of settings in the place of its parameter `given`, which gets what they say.

    A word is a group of keys (`onnxq.config.option`), one of _FILES, or a parameter of the command that stands among
    them. Those of `first` come directly behind what the command requires. A command that has a parameter by the name of
    a key declares its option itself, with a help text of its own.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = dict(inspect.signature(command, eval_str=True).parameters)
        slot = own.pop("given")
        groups = f"{first} {words}".split()
        keys = {key: option for key, option in OPTIONS.items() if option.group in groups or key in own}
        before, among = ([*_parameters(text.split(), own, keys)] for text in (first, words))
        placed = {parameter.name for parameter in (*before, *among)}
        order = list(inspect.signature(command).parameters)
        rest = [parameter for name, parameter in own.items() if name not in placed]
        required = [parameter for parameter in rest if parameter.default is parameter.empty]
        behind = [parameter for parameter in rest if parameter not in required]
        split = order.index(slot.name)
        parameters = [
            *required,
            *before,
            *(parameter for parameter in behind if order.index(parameter.name) < split),
            *among,
            *(parameter for parameter in behind if order.index(parameter.name) > split),
        ]

        if "quiet" in own:  # obeyed before the command begins
            parameters.append(_parameter("verbose", VerboseOption, default=False))
            parameters.append(_parameter("log_file", LogFileOption))

        @wraps(command)
        def run(**values: Any) -> None:
            command(**{name: values[name] for name in own}, given=_given(values, keys))

        keyword = inspect.Parameter.KEYWORD_ONLY
        run.__signature__ = inspect.Signature([one.replace(kind=keyword) for one in parameters])  # type: ignore[attr-defined]
        return run

    return decorate


def _parameters(
    words: Sequence[str], own: Mapping[str, inspect.Parameter], keys: Mapping[str, Option]
) -> Iterator[inspect.Parameter]:
    for word in words:
        if word in own:
            yield own[word]
        for name, annotation in _FILES.get(word, {}).items():
            yield _parameter(name, annotation, default=False if annotation is AllowCodeOption else None)
        for key, option in keys.items():
            if option.group == word:
                yield own.get(key) or _parameter(key, Annotated[option.kind | None, declared(key)])


def _parameter(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _given(values: OptionValues, keys: Mapping[str, Option]) -> Given:
    said = {key: values[key] for key in keys if values[key] not in (None, [], ())}
    read = {key: value if (of := keys[key].read) is None else of(keys[key].name, value) for key, value in said.items()}
    assignments = [
        Assignment((key,), tuple(value) if isinstance(value, list) else value, keys[key].name, keys[key].adds)
        for key, value in read.items()
        if key in Config.model_fields
    ]
    for one in map(read_assignment, values.get("assigned") or ()):
        option = keys.get(one.path[0])
        if option is not None and one.path[0] not in Config.model_fields:
            raise ConfigError(f"{one.said}: '{one.path[0]}' is a setting of training, give it with {option.name}")
        assignments.append(one)
    refuse_two_of_a_key(assignments)
    return Given(
        assignments,
        {key: value for key, value in read.items() if key not in Config.model_fields},
        **{name: values[name] for name in ("config", "allow_code") if name in values},
        foreign={name: values[name] for name in DIALECTS if values.get(name) is not None},
    )
