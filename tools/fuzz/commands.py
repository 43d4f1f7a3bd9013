"""Which commands read a file of each kind, with the arguments that make them get to it and end soon."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tools.fuzz import hostile
from tools.fuzz.corpus import Run
from tools.fuzz.kinds import Kind


@dataclass(frozen=True)
class Scene:
    """What a command is made of: the mutated file, its neighbours, a target, an output."""

    file: Path
    run: Run
    target: str
    out: Path
    rng: Random


@dataclass(frozen=True)
class Invocation:
    """Arguments of onnxq.

    model   what has to load in onnxruntime when the command ends well
    kept    what may stay behind after a refusal: where a later run goes on from
    torch   the command loads torch, which takes seconds and address space
    """

    arguments: tuple[str, ...]
    model: Path | None = None
    kept: tuple[Path, ...] = ()
    torch: bool = False


def _command(
    *arguments: object, model: Path | None = None, kept: Sequence[Path] = (), torch: bool = False
) -> Invocation:
    return Invocation(tuple(map(str, arguments)), model, tuple(kept), torch)


def _shown(scene: Scene) -> tuple[str, ...]:
    return ("--json",) if scene.rng.random() < 0.3 else ()


def inspect(scene: Scene) -> Invocation:
    return _command("inspect", scene.file, *_shown(scene))


def place(scene: Scene) -> Invocation:
    out = ("-o", scene.out / "plan.json") if scene.rng.random() < 0.3 else ()
    return _command("place", scene.file, "-b", scene.target, *out, *_shown(scene))


def quantize(scene: Scene) -> Invocation:
    return _quantize(scene.file, scene, "-b", scene.target, "--random", 1)


def quantize_with_effort(scene: Scene) -> Invocation:
    return _quantize(scene.file, scene, "-b", scene.target, "--random", 4, effort=1)


def quantize_with_data(scene: Scene) -> Invocation:
    return _quantize(scene.file, scene, "-b", scene.target, "-d", scene.run.data)


def _quantize(model: Path, scene: Scene, *arguments: object, effort: int = 0, kept: Sequence[Path] = ()) -> Invocation:
    model_out = scene.out / "model.onnx"
    return _command(
        "quantize", model, *arguments, "--effort", effort, "-o", scene.out, model=model_out, kept=kept, torch=effort > 1
    )


def calibrate(scene: Scene) -> Invocation:
    return _command("calibrate", scene.file, "-b", scene.target, "--random", 1, "-o", scene.out / "qparams.json")


def lint(scene: Scene) -> Invocation:
    return _command("lint", scene.file, "-b", scene.target, *_shown(scene))


def strip(scene: Scene) -> Invocation:
    out = scene.out / "float.onnx"
    return _command("strip", scene.file, "--random", 1, "--partial", "-o", out, model=out)


def compare(scene: Scene) -> Invocation:
    pair = scene.rng.choice(((scene.file, scene.file), (scene.run.model, scene.file), (scene.file, scene.run.folder)))
    return _command("compare", *pair, "--random", 1)


def _pattern(scene: Scene) -> str:
    """What a user types: odd, but without control characters, which nobody but the user has put there."""
    if scene.rng.random() < 0.7:
        return scene.rng.choice(("*", "op:Conv", "re:.*"))
    return scene.rng.choice([name for name in hostile.NAMES if name and name.isprintable()])


def explain_model(scene: Scene) -> Invocation:
    return _command("explain", scene.run.folder, "--model", scene.file, "--", _pattern(scene))


def emit_model(scene: Scene) -> Invocation:
    return _emit(scene, scene.file, scene.run.folder / "plan.json", scene.run.folder / "qparams.json")


def _emit(scene: Scene, model: Path, plan: Path, qparams: Path) -> Invocation:
    out = scene.out / "model.onnx"
    return _command(
        "emit", model, "--plan", plan, "--qparams", qparams, "-d", scene.run.data, "-o", scene.out, model=out
    )


def _simulate(scene: Scene, model: Path, *arguments: object) -> Invocation:
    out = scene.out / "simulated.onnx"
    return _command("simulate", model, *arguments, "-d", scene.run.data, "-o", out, model=out)


def simulate_model(scene: Scene) -> Invocation:
    return _simulate(scene, scene.file, "--plan", scene.run.folder)


def translate_model(scene: Scene) -> Invocation:
    return _command("translate", scene.file, "--vitis", scene.rng.choice(("pof2s", "fs", "tqt")))


def sensitivity(scene: Scene) -> Invocation:
    return _command("sensitivity", scene.file, "-b", scene.target, "--random", 1, "--eval-samples", 1)


def search(scene: Scene) -> Invocation:
    budget = ("--bits", "8,4", "--budget", "70%", "--evaluations", 2, "--effort", 0)
    kept = (scene.out / "cache",)
    return _command("search", scene.file, "-b", scene.target, "--random", 2, *budget, "-o", scene.out, kept=kept)


def qat(scene: Scene) -> Invocation:
    train = ("--train", scene.run.data, "--steps", 1, "--batch-size", 2)
    kept = (scene.out / "checkpoints",)
    return _command(
        "qat",
        scene.file,
        "-b",
        scene.target,
        *train,
        "-o",
        scene.out,
        model=scene.out / "model.onnx",
        kept=kept,
        torch=True,
    )


def data_of_quantize(scene: Scene) -> Invocation:
    stats = ("--stats", scene.out.parent / "statistics.npz") if scene.rng.random() < 0.2 else ()
    kept = (scene.out.parent / "statistics.npz",)
    return _quantize(scene.run.model, scene, "-b", scene.run.backend, "-d", scene.file, *stats, kept=kept)


def data_of_calibrate(scene: Scene) -> Invocation:
    return _command(
        "calibrate", scene.run.model, "-b", scene.run.backend, "-d", scene.file, "-o", scene.out / "qparams.json"
    )


def data_of_compare(scene: Scene) -> Invocation:
    return _command("compare", scene.run.model, scene.run.folder, "-d", scene.file)


def data_of_evaluation(scene: Scene) -> Invocation:
    return _command("sensitivity", scene.run.model, "-b", scene.run.backend, "-d", scene.run.data, "--eval", scene.file)


def data_of_training(scene: Scene) -> Invocation:
    train = ("--train", scene.file, "--steps", 1, "--batch-size", 2)
    kept = (scene.out / "checkpoints",)
    return _command(
        "qat",
        scene.run.model,
        "-b",
        scene.run.backend,
        *train,
        "-o",
        scene.out,
        model=scene.out / "model.onnx",
        kept=kept,
        torch=True,
    )


def image(scene: Scene) -> Invocation:
    data = scene.rng.choice((scene.file, scene.file.parent))
    how = scene.rng.choice(
        (("--preprocess", "unit"), ("--preprocess", "resize=20,crop=16"), ("--preprocess", "imagenet"), ())
    )
    return _command(
        "calibrate", scene.run.model, "-b", scene.run.backend, "-d", data, *how, "-o", scene.out / "qparams.json"
    )


def plan_of_emit(scene: Scene) -> Invocation:
    return _emit(scene, scene.run.model, scene.file, scene.run.folder / "qparams.json")


def plan_of_simulate(scene: Scene) -> Invocation:
    return _simulate(scene, scene.run.model, "--plan", scene.file, "--qparams", scene.run.folder / "qparams.json")


def plan_of_calibrate(scene: Scene) -> Invocation:
    return _command(
        "calibrate", scene.run.model, "--plan", scene.file, "-d", scene.run.data, "-o", scene.out / "qparams.json"
    )


def plan_of_explain(scene: Scene) -> Invocation:
    model = ("--model", scene.run.model) if scene.rng.random() < 0.4 else ()
    return _command("explain", scene.file, *model, *_shown(scene), "--", _pattern(scene))


def qparams_of_emit(scene: Scene) -> Invocation:
    return _emit(scene, scene.run.model, scene.run.folder / "plan.json", scene.file)


def qparams_of_simulate(scene: Scene) -> Invocation:
    return _simulate(scene, scene.run.model, "--plan", scene.run.folder / "plan.json", "--qparams", scene.file)


def statistics_of_merge(scene: Scene) -> Invocation:
    others = (scene.run.statistics,) if scene.rng.random() < 0.4 else ()
    return _command("merge", scene.file, *others, "-o", scene.out / "merged.npz")


def statistics_of_calibrate(scene: Scene) -> Invocation:
    used = ("--stats", scene.file, "-d", scene.run.data)
    return _command("calibrate", scene.run.model, "-b", scene.run.backend, *used, "-o", scene.out / "qparams.json")


def _given_target(scene: Scene) -> tuple[str, ...]:
    """Some configurations name no target; those that do are half of the time given another."""
    return ("-b", scene.target) if scene.file.name == "int4.toml" or scene.rng.random() < 0.5 else ()


def settings_of_place(scene: Scene) -> Invocation:
    return _command("place", scene.run.model, *_given_target(scene), "-c", scene.file)


def settings_of_quantize(scene: Scene) -> Invocation:
    return _quantize(scene.run.model, scene, *_given_target(scene), "-c", scene.file, "-d", scene.run.data)


def settings_of_explain(scene: Scene) -> Invocation:
    return _command("explain", scene.run.folder, "-c", scene.file, "--model", scene.run.model, "--", _pattern(scene))


def _dialect(scene: Scene) -> tuple[object, ...]:
    if "vitis" in scene.file.name:
        return ("--vitis", scene.file)
    if scene.file.name in ("integers.json", "transformer.yaml"):
        return ("--sophgo", scene.file)
    return ("--mqbench", scene.file, "-b", scene.rng.choice(("tensorrt", "academic", "nnie", "vitis", "snpe")))


def dialect_of_translate(scene: Scene) -> Invocation:
    return _command("translate", scene.run.model, *_dialect(scene), "-o", scene.out / "settings.json")


def dialect_of_place(scene: Scene) -> Invocation:
    return _command("place", scene.run.model, *_dialect(scene))


def dialect_of_quantize(scene: Scene) -> Invocation:
    return _quantize(scene.run.model, scene, *_dialect(scene), "-d", scene.run.data)


def folder_of_compare(scene: Scene) -> Invocation:
    return _command("compare", scene.run.model, scene.file.parent, "-d", scene.run.data)


def folder_of_explain(scene: Scene) -> Invocation:
    return _command("explain", scene.file.parent, "--", _pattern(scene))


def folder_of_diff(scene: Scene) -> Invocation:
    return _command("diff", scene.run.folder, scene.file.parent, *_shown(scene))


def folder_of_simulate(scene: Scene) -> Invocation:
    return _simulate(scene, scene.run.model, "--plan", scene.file.parent)


def folder_of_quantize(scene: Scene) -> Invocation:
    """Into the folder of an earlier run, whose files are damaged: what is there is replaced, or kept as it is."""
    out = scene.file.parent
    used = ("-b", scene.run.backend, "-d", scene.run.data, "--effort", 0)
    return _command("quantize", scene.run.model, *used, "-o", out, model=out / "model.onnx", kept=(out,))


def cache_of_sensitivity(scene: Scene) -> Invocation:
    used = ("-b", scene.run.backend, "-d", scene.run.data, "--cache", scene.file.parent)
    return _command("sensitivity", scene.run.model, *used, kept=(scene.file.parent,))


def checkpoint_of_qat(scene: Scene) -> Invocation:
    train = ("--train", scene.run.data, "--steps", 1, "--batch-size", 2)
    used = ("--checkpoint", scene.file.parent, "--resume", "-o", scene.out)
    return _command(
        "qat", scene.run.model, "-b", scene.run.backend, *train, *used, kept=(scene.file.parent,), torch=True
    )


Build = Callable[[Scene], Invocation]

COMMANDS: Mapping[Kind, Mapping[Build, float]] = {
    Kind.MODELS: {
        inspect: 18,
        place: 18,
        quantize: 36,
        quantize_with_data: 5,
        quantize_with_effort: 1,
        calibrate: 4,
        lint: 6,
        strip: 3,
        compare: 4,
        explain_model: 2,
        emit_model: 2,
        simulate_model: 2,
        translate_model: 1,
        sensitivity: 0.5,
        search: 0.3,
        qat: 0.2,
    },
    Kind.DATA: {
        data_of_quantize: 4,
        data_of_calibrate: 4,
        data_of_compare: 3,
        data_of_evaluation: 1,
        data_of_training: 0.1,
    },
    Kind.IMAGES: {image: 1},
    Kind.PLANS: {plan_of_emit: 3, plan_of_simulate: 2, plan_of_calibrate: 2, plan_of_explain: 3},
    Kind.QPARAMS: {qparams_of_emit: 3, qparams_of_simulate: 2},
    Kind.STATISTICS: {statistics_of_merge: 1, statistics_of_calibrate: 2},
    Kind.SETTINGS: {settings_of_place: 3, settings_of_quantize: 1, settings_of_explain: 1},
    Kind.DIALECTS: {dialect_of_translate: 3, dialect_of_place: 1, dialect_of_quantize: 0.3},
    Kind.FOLDERS: {
        folder_of_compare: 1,
        folder_of_explain: 2,
        folder_of_diff: 2,
        folder_of_simulate: 1,
        folder_of_quantize: 1,
    },
    Kind.CACHES: {cache_of_sensitivity: 1},
    Kind.CHECKPOINTS: {checkpoint_of_qat: 1},
}
"""Kind -> commands with their weights: what is cheap comes often, what is dear sometimes."""


def named(kind: Kind, name: str) -> Build:
    return next(build for build in COMMANDS[kind] if build.__name__ == name)
