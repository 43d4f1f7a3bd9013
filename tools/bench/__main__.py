"""`python -m tools.bench WHAT`: measure onnxq against a baseline in the same run, and make a page of the results."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tools.bench import accuracy, calibration, end_to_end, graph_work, large_model, quantized_speed
from tools.bench.models import MODELS
from tools.bench.peers.formats import FORMATS
from tools.bench.read_page import read_page
from tools.bench.report import write_page, write_summary
from tools.bench.results import ReportError, Result, Tables, machine_facts, read_result

Arguments = argparse.Namespace

CACHE = Path.home() / ".cache" / "onnxq-bench"
"""Where data and networks that benchmarks make are kept: outside of the repository."""

PTQ_PEERS = ("onnxruntime", "nncf", "quark", "aimet")
SETS = (
    *("digits", "mnist", "depthwise", "transformer", "mobilenetv2"),
    *("ocr-recognizer", "ocr-detector", "ocr-direction", "minilm-l3", "minilm-l6", "silero"),
)
"""What `ptq-accuracy` is measured on: those with labels, then those without."""

OUTPUT_OPTIONS = ("--json", "--markdown", "--cache")
PEER_OPTION, FOLDER_OPTION = "--peer-python", "--folder"


def _calibration(given: Arguments) -> Tables:
    peers = {"onnxruntime": sys.executable, **dict(given.peer_python)} if given.peers or given.peer_python else None
    return calibration.measure(
        calibration.Settings(
            models=given.models,
            samples=given.samples,
            repeats=given.repeats,
            memory_models=given.memory_models,
            memory_samples=given.memory_samples,
            peers=peers,
            timeout=given.timeout,
            clock=given.clock,
        )
    )


def _qat_speed(given: Arguments) -> Tables:
    from tools.bench import qat_speed  # here, because torch is needed for this and the next alone

    return qat_speed.measure(
        qat_speed.Settings(
            rounds=given.rounds,
            batch=given.batch,
            size=given.size,
            width=given.width,
            threads=given.threads,
            clock=given.clock,
            torch_ao=not given.no_torch_ao,
        )
    )


def _qat_accuracy(given: Arguments) -> Tables:
    from tools.bench import qat_accuracy

    return qat_accuracy.measure(
        qat_accuracy.Settings(
            sets=given.sets,
            steps=given.steps,
            seeds=given.seeds,
            batch=given.batch,
            formats=given.formats,
            cache=given.cache,
        )
    )


def _ptq_accuracy(given: Arguments) -> Tables:
    from tools.bench import ptq_accuracy  # here, because the networks are trained with torch

    return ptq_accuracy.measure(
        ptq_accuracy.Settings(
            cache=given.cache,
            sets=given.sets,
            formats=given.formats,
            efforts=given.efforts,
            peers={name: dict(given.peer_python).get(name, sys.executable) for name in given.peers},
            calibration=given.samples,
            test=given.test_samples,
            settings=given.settings,
            timeout=given.timeout,
        ),
        progress=lambda tables: _save(given, tables),
    )


def _speed(given: Arguments) -> Tables:
    return quantized_speed.measure(
        quantized_speed.Settings(
            folders=dict(given.folders),
            made=given.models,
            peers={name: dict(given.peer_python).get(name, sys.executable) for name in given.peers},
            samples=given.samples,
            rounds=given.repeats,
            timeout=given.timeout,
        ),
        progress=lambda tables: _save(given, tables),
    )


def _end_to_end(given: Arguments) -> Tables:
    return end_to_end.measure(
        end_to_end.Settings(
            folders=dict(given.folders),
            made=given.models,
            efforts=given.efforts,
            peers={name: dict(given.peer_python).get(name, sys.executable) for name in given.peers},
            settings=given.settings,
            samples=given.samples,
            unseen=given.unseen,
            repeats=given.repeats,
            timeout=given.timeout,
        ),
        progress=lambda tables: _save(given, tables),
    )


def _save(given: Arguments, tables: Tables) -> Result:
    result = Result(given.what, given.command, machine_facts(), tables)
    if given.json:
        result.save(given.json)
    return result


MEASURE: dict[str, Callable[[Arguments], Tables]] = {
    "calibration": _calibration,
    "accuracy": lambda given: accuracy.measure(given.samples, given.test_samples),
    "graph": lambda given: {"": graph_work.measure(given.sizes)},
    "speed": _speed,
    "memory": lambda given: {"": large_model.measure(given.gigabytes)},
    "qat-speed": _qat_speed,
    "qat-accuracy": _qat_accuracy,
    "ptq-accuracy": _ptq_accuracy,
    "e2e": _end_to_end,
}


def peer_python(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not equals or name not in calibration.PEERS:
        raise argparse.ArgumentTypeError(f"write NAME=PATH with a NAME among {', '.join(calibration.PEERS)}")
    return name, path


def named_folder(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not equals or not name or not Path(path).is_dir():
        raise argparse.ArgumentTypeError(
            "write NAME=FOLDER with a folder that holds model.onnx, calibration/ and held/"
        )
    return name, Path(path)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tools.bench", description=__doc__)
    commands = parser.add_subparsers(dest="what", required=True)

    calibrating = commands.add_parser("calibration", help="time and memory of calibration, against plain inference")
    every = [name for name in MODELS if name != "tiny"]
    calibrating.add_argument("--models", nargs="+", choices=list(MODELS), default=every)
    calibrating.add_argument("--samples", type=int, default=64)
    calibrating.add_argument("--repeats", type=int, default=3)
    calibrating.add_argument("--memory-models", nargs="*", choices=list(MODELS), default=["mobilenetv2"])
    calibrating.add_argument("--memory-samples", type=int, nargs="+", default=[64, 1024])
    calibrating.add_argument("--peers", action="store_true", help="also measure other tools")
    calibrating.add_argument(
        PEER_OPTION, type=peer_python, action="append", default=[], metavar="NAME=PATH", help="interpreter of a peer"
    )
    calibrating.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: seconds of all threads")
    calibrating.add_argument(
        "--timeout", type=float, default=1800.0, help="seconds for one run in a process of its own"
    )

    measuring = commands.add_parser("accuracy", help="accuracy of quantized models, by observer")
    measuring.add_argument("--samples", type=int, default=64, help="calibration samples")
    measuring.add_argument("--test-samples", type=int, default=32, help="samples for the SQNR of trained models")

    graphs = commands.add_parser("graph", help="cost of graph work on long chains")
    graphs.add_argument("--sizes", type=int, nargs="+", default=[500, 2000, 10000], help="numbers of nodes")

    speed = commands.add_parser("speed", help="speed of quantized models in onnxruntime")
    speed.add_argument("--models", nargs="*", choices=list(MODELS), default=["resnet50", "mobilefacenet"])
    speed.add_argument(
        FOLDER_OPTION,
        dest="folders",
        type=named_folder,
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help="a model of one's own, as for e2e. Repeatable",
    )
    speed.add_argument("--peers", nargs="*", choices=PTQ_PEERS, default=["onnxruntime"], help="other tools to measure")
    speed.add_argument(
        PEER_OPTION, type=peer_python, action="append", default=[], metavar="NAME=PATH", help="interpreter of a peer"
    )
    speed.add_argument("--samples", type=int, default=16, help="calibration samples")
    speed.add_argument("--repeats", type=int, default=15, help="rounds in which every file is timed once")
    speed.add_argument("--timeout", type=float, default=1800.0, help="seconds for one file")

    memory = commands.add_parser("memory", help="peak memory on a model of several gigabytes")
    memory.add_argument("--gigabytes", type=float, default=3.0, help="size of the model")

    steps = commands.add_parser("qat-speed", help="time of a training step, float and with quantizers (needs torch)")
    steps.add_argument("--rounds", type=int, default=9, help="timed steps of each row")
    steps.add_argument("--batch", type=int, default=16)
    steps.add_argument("--size", type=int, default=112, help="height and width of the images")
    steps.add_argument("--width", type=int, default=64, help="channels of the first blocks of the ResNet-18")
    steps.add_argument("--threads", type=int, default=2, help="threads of torch")
    steps.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: seconds of all threads together")
    steps.add_argument("--no-torch-ao", action="store_true", help="leave out torch's own QAT")

    training = commands.add_parser("qat-accuracy", help="accuracy after training, by fake-quantizer (needs torch)")
    training.add_argument("--sets", nargs="+", choices=["digits", "mnist"], default=["digits", "mnist"])
    training.add_argument("--formats", nargs="+", metavar="NAME", help="only these number formats, such as W3A3")
    training.add_argument("--steps", type=int, default=300, help="steps of one training")
    training.add_argument("--batch", type=int, default=64)
    training.add_argument("--seeds", type=int, default=2, help="trainings of each row")
    training.add_argument("--cache", type=Path, default=CACHE, help="folder for data and trained networks")

    efforts = commands.add_parser("ptq-accuracy", help="accuracy without training: efforts of onnxq, and other tools")
    efforts.add_argument("--sets", nargs="+", choices=SETS, default=SETS, help="networks and models")
    efforts.add_argument("--formats", nargs="+", choices=FORMATS, default=FORMATS)
    efforts.add_argument("--efforts", type=int, nargs="*", default=[0, 1, 2, 3])
    efforts.add_argument("--peers", nargs="*", choices=PTQ_PEERS, default=[], help="other tools to measure")
    efforts.add_argument("--settings", nargs="+", metavar="NAME", help="only these settings of other tools")
    efforts.add_argument(
        PEER_OPTION, type=peer_python, action="append", default=[], metavar="NAME=PATH", help="interpreter of a peer"
    )
    efforts.add_argument("--samples", type=int, default=128, help="calibration samples")
    efforts.add_argument("--test-samples", type=int, default=2000, help="samples to evaluate on")
    efforts.add_argument(
        "--timeout", type=float, default=1800.0, help="seconds for one file; of onnxq, for those of all efforts"
    )
    efforts.add_argument("--cache", type=Path, default=CACHE, help="folder for data and trained networks")

    whole = commands.add_parser("e2e", help="time and accuracy from file to file: efforts of onnxq, and other tools")
    whole.add_argument(
        FOLDER_OPTION,
        dest="folders",
        type=named_folder,
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help="a model of one's own: a folder with model.onnx, calibration/*.npz and held/*.npz. Repeatable",
    )
    whole.add_argument("--models", nargs="*", choices=list(MODELS), default=[], help="networks with random weights")
    whole.add_argument("--efforts", type=int, nargs="*", choices=range(4), default=[0, 1, 2])
    whole.add_argument("--peers", nargs="*", choices=PTQ_PEERS, default=["onnxruntime"], help="other tools to measure")
    whole.add_argument("--settings", nargs="+", metavar="NAME", default=["default"], help="settings of other tools")
    whole.add_argument(
        PEER_OPTION, type=peer_python, action="append", default=[], metavar="NAME=PATH", help="interpreter of a peer"
    )
    whole.add_argument("--samples", type=int, default=64, help="calibration samples, at most")
    whole.add_argument("--unseen", type=int, default=24, help="samples to judge with, at most")
    whole.add_argument("--repeats", type=int, default=3)
    whole.add_argument("--timeout", type=float, default=1800.0, help="seconds for one file")

    for command in (whole, calibrating, measuring, graphs, speed, memory, steps, training, efforts):
        command.add_argument("--json", type=Path, help="also write the result to this file, for the report")
        command.add_argument("--markdown", type=Path, help="also write the tables to this file")

    report = commands.add_parser("report", help="make a page from JSON files")
    report.add_argument("files", type=Path, nargs="*", help="results; later ones take the place of earlier ones")
    report.add_argument(
        "--onto", type=Path, metavar="PAGE", help="a page of this tool whose results come before the files'"
    )
    report.add_argument("-o", "--out", type=Path, required=True)
    report.add_argument(
        "--summary", type=Path, metavar="PAGE", help="also write the summary of ptq-accuracy, and its picture beside it"
    )
    return parser


def shown_command(arguments: Sequence[str]) -> str:
    """The command line without what is particular to a machine: output files, paths of interpreters and models."""
    shown: list[str] = []
    words = iter(arguments)
    for word in words:
        option, equals, value = word.partition("=")
        if option in OUTPUT_OPTIONS:
            if not equals:
                next(words)
        elif option in (PEER_OPTION, FOLDER_OPTION):
            place = "PYTHON" if option == PEER_OPTION else "FOLDER"
            shown += [option, (value if equals else next(words)).partition("=")[0] + f"={place}"]
        else:
            shown.append(word)
    return shlex.join(["python", "-m", "tools.bench", *shown])


def main(arguments: Sequence[str]) -> None:
    parser = make_parser()
    given = parser.parse_args(arguments)
    if given.what == "report":
        if not given.files and given.onto is None:
            parser.error("report needs JSON files of results, or a page with --onto, or both")
        try:
            earlier = [] if given.onto is None else read_page(given.onto)
            results = [*earlier, *(read_result(path) for path in given.files)]
            write_page(results, given.out)
            if given.summary is not None:
                write_summary(results, given.summary)
        except (OSError, ReportError) as error:
            parser.error(str(error))
        return
    given.command = shown_command(arguments)
    result = _save(given, MEASURE[given.what](given))
    print(result.markdown())
    if given.markdown:
        given.markdown.write_text(result.markdown(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
