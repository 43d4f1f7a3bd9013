"""Options that several commands share: one spelling and one help text each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def settled(path: Path | None) -> Path | None:
    """A file or folder that is read, after what a killed run had begun to deliver there is finished or undone."""
    from onnxq.output_folder import settle

    if path is not None:
        settle(path if path.is_dir() else path.parent)
    return path


ModelArgument = Annotated[
    Path, typer.Argument(metavar="MODEL", help="ONNX model file.", show_default=False, callback=settled)
]

BackendOption = Annotated[
    str | None,
    typer.Option(
        "--backend", "-b", help="Target: a name from 'onnxq list backends', or a backend file.py; else that of -c."
    ),
]
RequiredBackendOption = Annotated[
    str, typer.Option("--backend", "-b", help="Target: a name from 'onnxq list backends', or a backend file.py.")
]
PlanBackendOption = Annotated[
    str | None,
    typer.Option("--backend", "-b", help="Target, when the plan's own name is not enough: a backend file.py."),
]
DataOption = Annotated[
    str | None,
    typer.Option("--data", "-d", help="Samples: .npz or .npy file, folder of them or of images, or module:function."),
]
PreprocessOption = Annotated[
    str | None,
    typer.Option("--preprocess", help="How images become arrays: imagenet, unit, signed, or resize=256,crop=224,..."),
]
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
SamplesOption = Annotated[int | None, typer.Option("--samples", help="Use at most N samples.", metavar="N")]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="Configuration: .toml, .yaml or .json.", callback=settled)
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
MqbenchOption = Annotated[
    Path | None,
    typer.Option(
        "--mqbench", help="MQBench's extra_config (.py, .json, .yaml); -b takes MQBench's names.", metavar="FILE"
    ),
]
SophgoOption = Annotated[
    Path | None,
    typer.Option("--sophgo", help="Sophgo-mq's prepare_custom_config_dict (.py, .json, .yaml).", metavar="FILE"),
]
VitisOption = Annotated[
    str | None,
    typer.Option("--vitis", help="Vitis AI's quantize strategy: pof2s, fs, tqt, or a file.", metavar="NAME_OR_FILE"),
]
ObserverOption = Annotated[
    str | None, typer.Option("--observer", help="How ranges of activations are found, such as percentile:99.99.")
]
WeightObserverOption = Annotated[str | None, typer.Option("--weight-observer", help="How ranges of weights are found.")]
SkipOption = Annotated[
    list[str] | None,
    typer.Option(
        "--skip", help="Nodes that stay float: name, glob, re:REGEX, op:OPERATOR. Repeatable.", metavar="PATTERN"
    ),
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
FreshOption = Annotated[bool, typer.Option("--fresh", help="Collect statistics anew, whatever their file holds.")]
WorkersOption = Annotated[
    int | None, typer.Option("--workers", help="Samples to run at the same time; every core by default.", metavar="N")
]
MemoryLimitOption = Annotated[
    str | None,
    typer.Option("--memory-limit", help="What calibration may hold of observed tensors, such as 2GB.", metavar="SIZE"),
]
ProviderOption = Annotated[
    str | None, typer.Option("--provider", help="onnxruntime's execution provider for calibration, such as cuda.")
]

MinimumOption = Annotated[
    float | None,
    typer.Option("--min-sqnr", help="An output, or a part of one, below this many dB fails the run.", metavar="DB"),
]

DiagnoseOption = Annotated[
    bool | None,
    typer.Option(
        "--diagnose/--no-diagnose",
        help="Find out why a result is below 20 dB and what mends it; yes by default, "
        "with --effort 0 only if a check fails.",
        show_default=False,
    ),
]

EffortOption = Annotated[
    int | None,
    typer.Option(
        "--effort",
        help="What is tried for accuracy: 0 calibration only; 1 (by default) seconds; 2 minutes; 3 longer.",
        metavar="0..3",
    ),
]
ImproveOption = Annotated[
    list[str] | None,
    typer.Option(
        "--improve",
        help="This improvement in the place of those of the effort, such as gptq:act_order=no. Repeatable, in order.",
        metavar="NAME",
    ),
]
