"""Ten made-up illnesses of quantized models, for tests and for the table of docs/diagnose.md.

Each is a model, data and a configuration in which one thing is wrong, and the healthy ones beside it. The networks are
the digit classifier that comes with onnxq, with heads or colours where these are needed, and a layer of attention.

    python -m tools.illnesses        diagnoses all of them and writes the table into docs/diagnose.md
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from onnxq.demo import load_data, model_path
from onnxq.diagnose import THOROUGH, Budget, Diagnosis, diagnose
from onnxq.diagnose.causes import Code
from onnxq.diagnose.noise import worst_db
from onnxq.diagnose.text import remedy_line
from onnxq.graph import Graph
from onnxq.mixed_precision import Subject
from onnxq.mixed_precision.study import Study
from onnxq.runtime import input_infos, open_dataset
from onnxq.runtime.session import float_session, run_session

PAGE = Path(__file__).resolve().parent.parent / "docs" / "diagnose.md"
BEGIN, END = "<!-- illnesses -->\n", "<!-- end of illnesses -->\n"

Feeds = list[dict[str, np.ndarray]]


@dataclass(frozen=True)
class Patient:
    """A model with data and settings; `test` are samples as the network was made for, which nothing is fitted to."""

    model: Graph
    data: Any
    test: Feeds
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Illness:
    """One thing that is wrong: the cause that a diagnosis has to name first, and the same without it."""

    name: str
    code: Code
    backend: str
    ill: Callable[[Path], Patient]
    healthy: Callable[[Path], Patient]


@dataclass(frozen=True)
class Course:
    """How it went: worst result on the test samples with the illness, with the remedy, and of the healthy model."""

    illness: Illness
    diagnosis: Diagnosis
    before_db: float
    after_db: float
    healthy_db: float


def treat(illness: Illness, folder: Path, budget: Budget = THOROUGH) -> Course:
    """Diagnose an illness, apply what pays, and measure on samples that nobody has seen."""
    patient = illness.ill(folder)
    found = diagnose(
        Subject(patient.model, backend=illness.backend, data=patient.data, config=patient.config), budget=budget
    )
    before = _measured(patient, patient.config, illness.backend)
    healthy = illness.healthy(folder)
    document = found.remedied()
    after = before
    if document is not None:
        after = _measured(patient, {k: v for k, v in document.items() if k != "backend"}, document["backend"])
    return Course(illness, found, before, after, _measured(healthy, healthy.config, illness.backend))


def _measured(patient: Patient, config: Mapping[str, Any], backend: str) -> float:
    """The worst result of the calibrated model on the test samples."""
    test = open_dataset(list(patient.test), input_infos(patient.model))
    study = Study(Subject(patient.model, backend=backend, data=patient.data, config=config, evaluate_on=test))
    return worst_db(study.score(study.calibrated(study.plan())))


# The digit classifier, and what is made of it.

SAMPLES, TESTS = 32, 16


def _images() -> tuple[np.ndarray, Feeds]:
    data = load_data()
    test: Feeds = [{"image": data.test_images[number : number + 1]} for number in range(TESTS)]
    return data.calibration[:SAMPLES].copy(), test


def _digits(folder: Path) -> Patient:
    images, test = _images()
    return Patient(Graph.load(model_path()), images, test)


def _outlier_sample(folder: Path) -> Patient:
    """One image with pixels 0 .. 255 among those with 0 .. 1."""
    images, test = _images()
    images[5] *= 255
    return Patient(Graph.load(model_path()), images, test)


def _without_class(bias: float) -> Callable[[Path], Patient]:
    """A channel that a bias switches off for good, in front of a Relu."""

    def make(folder: Path) -> Patient:
        graph = Graph.load(model_path())
        shift = graph.values("pointwise.bn.bias").copy()
        shift[7] = bias
        graph.set_values("pointwise.bn.bias", shift)
        images, test = _images()
        return Patient(graph, images, test)

    return make


def _with_heads(*, joined: bool, config: Mapping[str, Any]) -> Callable[[Path], Patient]:
    """Boxes in pixels and scores behind the classifier, as one output or as two."""

    def make(folder: Path) -> Patient:
        model = onnx.load(str(model_path()))
        weight = np.random.default_rng(1).normal(0, 12, (10, 8)).astype(np.float32)
        graph = model.graph
        graph.initializer.append(numpy_helper.from_array(weight, "boxes.weight"))
        graph.node.append(helper.make_node("MatMul", ["logits", "boxes.weight"], ["boxes"], "boxes.matmul"))
        graph.node.append(helper.make_node("Sigmoid", ["logits"], ["scores"], "scores.sigmoid"))
        del graph.output[:]
        outputs = {"boxes": 8, "scores": 10}
        if joined:
            graph.node.append(helper.make_node("Concat", ["boxes", "scores"], ["found"], "join", axis=1))
            outputs = {"found": 18}
        graph.output.extend(
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size]) for name, size in outputs.items()
        )
        images, test = _images()
        return Patient(Graph.from_model(model), images, test, config)

    return make


def _normalized(factor: float) -> Callable[[Path], Patient]:
    """A channel that an InstanceNormalization makes large again, however small the weights are."""

    def make(folder: Path) -> Patient:
        model = onnx.load(str(model_path()))
        trained = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
        weight = trained["residual1.conv.weight"].copy()
        weight[3] *= factor
        constants = {
            "stem.weight": trained["stem.conv.weight"],
            "conv.weight": weight,
            "gamma": np.ones(32, np.float32),
            "beta": np.zeros(32, np.float32),
            # The small channel is one of few that count.
            "out.weight": _few_channels(np.random.default_rng(2), 10, 32, kept=(3, 9, 20)),
        }
        nodes = [
            helper.make_node("Conv", ["image", "stem.weight"], ["a"], "stem", pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["a"], ["b"], "stem.relu"),
            helper.make_node("Conv", ["b", "conv.weight"], ["c"], "conv", pads=[1, 1, 1, 1]),
            helper.make_node("InstanceNormalization", ["c", "gamma", "beta"], ["d"], "norm", epsilon=1e-12),
            helper.make_node("Relu", ["d"], ["e"], "relu"),
            helper.make_node("Conv", ["e", "out.weight"], ["out"], "out.conv"),
        ]
        images, test = _images()
        return Patient(_graph(nodes, constants, {"image": [1, 1, 8, 8]}, {"out": [1, 10, 8, 8]}), images, test)

    return make


def _few_channels(random: np.random.Generator, rows: int, columns: int, kept: tuple[int, ...]) -> np.ndarray:
    weight = np.zeros((rows, columns, 1, 1), np.float32)
    weight[:, list(kept), 0, 0] = random.normal(0, 0.3, (rows, len(kept)))
    return weight


# Attention, with pixels or words as tokens.


def _attention(tokens: int, *, mask: bool, config: Mapping[str, Any], spread: float = 1.0) -> Callable[[Path], Patient]:
    """softmax(Q K^T + mask) V of tokens of 16 numbers; `spread` is how unlike the scores are."""

    def make(folder: Path) -> Patient:
        random = np.random.default_rng(3)
        size = 16
        constants = {
            name: random.normal(0, 1 / np.sqrt(size), (size, size)).astype(np.float32) for name in ("wq", "wk", "wv")
        }
        constants |= {"scale": np.float32(spread / np.sqrt(size)).reshape(1), "one": np.ones(1, np.float32),
                      "far": np.full(1, -1e4, np.float32)}  # fmt: skip
        nodes = [
            helper.make_node("MatMul", ["x", "wq"], ["q"], "q"),
            helper.make_node("MatMul", ["x", "wk"], ["k"], "k"),
            helper.make_node("MatMul", ["x", "wv"], ["v"], "v"),
            helper.make_node("Transpose", ["k"], ["kt"], "kt", perm=[0, 2, 1]),
            helper.make_node("MatMul", ["q", "kt"], ["products"], "products"),
            helper.make_node("Mul", ["products", "scale"], ["scores"], "scale"),
            helper.make_node("Softmax", ["masked" if mask else "scores"], ["p"], "softmax", axis=-1),
            helper.make_node("MatMul", ["p", "v"], ["out"], "out"),
        ]
        inputs = {"x": [1, tokens, size]}
        if mask:
            added = [
                helper.make_node("Sub", ["one", "keep"], ["drop"], "drop"),
                helper.make_node("Mul", ["drop", "far"], ["penalty"], "penalty"),
                helper.make_node("Add", ["scores", "penalty"], ["masked"], "mask_add"),
            ]
            nodes[6:6] = added
            inputs["keep"] = [1, 1, tokens]
        feeds = [_tokens(random, tokens, size, mask) for _ in range(SAMPLES + TESTS)]
        graph = _graph(nodes, constants, inputs, {"out": [1, tokens, size]})
        return Patient(graph, feeds[:SAMPLES], feeds[SAMPLES:], config)

    return make


def _tokens(random: np.random.Generator, tokens: int, size: int, mask: bool) -> dict[str, np.ndarray]:
    # What all tokens have in common is what attention gives back: small probabilities add up to it.
    x = random.uniform(-1, 1, (1, tokens, size)) + random.uniform(-1, 1, (1, 1, size))
    feed = {"x": x.astype(np.float32)}
    if mask:
        length = int(random.integers(tokens // 2, tokens))
        feed["keep"] = (np.arange(tokens) < length).astype(np.float32).reshape(1, 1, tokens)
    return feed


# Colours: the digit classifier for images of three channels, with batch norms that know them.

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TRAINED_WITH: Mapping[str, Any] = {"color": "RGB", "scale": 1 / 255, "mean": MEAN, "std": STD}
BACKGROUND, INK = np.array([30.0, 120.0, 200.0]), np.array([230.0, 60.0, 110.0])


def _colored(images: np.ndarray, seed: int) -> np.ndarray:
    """[count, 8, 8, 3] pixels: ink of one colour on a background of another, with some noise."""
    random = np.random.default_rng(seed)
    gray = images[:, 0, :, :, None]
    pixels = BACKGROUND + gray * (INK - BACKGROUND) + random.normal(0, 8, (*gray.shape[:3], 3))
    return np.asarray(np.clip(np.round(pixels), 0, 255), np.uint8)


def _prepared(pixels: np.ndarray) -> np.ndarray:
    """As the network was trained: [count, 3, 8, 8]."""
    values = (pixels / 255.0 - np.array(MEAN)) / np.array(STD)
    return np.ascontiguousarray(values.transpose(0, 3, 1, 2)).astype(np.float32)


def _color_network() -> Graph:
    model = onnx.load(str(model_path()))
    for item in model.graph.initializer:
        if item.name == "stem.conv.weight":
            weight = numpy_helper.to_array(item)
            item.CopyFrom(
                numpy_helper.from_array(np.concatenate([0.9 * weight, -0.4 * weight, -0.2 * weight], 1), item.name)
            )
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 3
    graph = Graph.from_model(model)
    training = _prepared(_colored(load_data().train_images[:200], 4))
    for node in graph.nodes("BatchNormalization"):  # in the order of the graph: each sees what those before it make
        name = node.inputs[0].name
        session = float_session(graph, [name])
        (values,) = run_session(session, [name], {"image": training}, "training")
        graph.set_values(node.inputs[3].name, values.mean((0, 2, 3)).astype(np.float32))
        graph.set_values(node.inputs[4].name, values.var((0, 2, 3)).astype(np.float32))
    return graph


def _photographed(preprocess: Mapping[str, Any]) -> Callable[[Path], Patient]:
    """Image files, read with some preprocessing; the test samples are as the network was trained."""

    def make(folder: Path) -> Patient:
        data = load_data()
        place = folder / "images"
        place.mkdir(exist_ok=True)
        for number, pixels in enumerate(_colored(data.calibration[:SAMPLES], 5)):
            Image.fromarray(pixels, "RGB").save(place / f"{number:02}.png")
        test = _prepared(_colored(data.test_images[:TESTS], 6))
        feeds: Feeds = [{"image": test[number : number + 1]} for number in range(TESTS)]
        plain = {key: list(value) if isinstance(value, tuple) else value for key, value in preprocess.items()}
        return Patient(_color_network(), str(place), feeds, {"preprocess": plain})

    return make


def _graph(
    nodes: list[onnx.NodeProto],
    constants: Mapping[str, np.ndarray],
    inputs: Mapping[str, list[int]],
    outputs: Mapping[str, list[int]],
) -> Graph:
    def described(shapes: Mapping[str, list[int]]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]

    made = helper.make_graph(
        nodes,
        "network",
        described(inputs),
        described(outputs),
        [numpy_helper.from_array(np.asarray(values), name) for name, values in constants.items()],
    )
    return Graph.from_model(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))


_SHARED = {"tensor": {"boxes": {"share": "head"}, "scores": {"share": "head"}}}

ILLNESSES: tuple[Illness, ...] = (
    Illness("one outlier sample", "outlier_sample", "onnxruntime", _outlier_sample, _digits),
    Illness("one dead channel", "dead_channels", "qnn", _normalized(1e-3), _normalized(1.0)),
    Illness(
        "boxes and scores tied", "tied_ranges", "qnn",
        _with_heads(joined=True, config={"force": ["join"]}), _with_heads(joined=True, config={}),
    ),
    Illness(
        "wrong mean and std", "wrong_preprocessing", "qnn",
        _photographed({**TRAINED_WITH, "mean": 0.0, "std": 0.02}), _photographed(TRAINED_WITH),
    ),
    Illness(
        "BGR for RGB", "wrong_preprocessing", "qnn",
        _photographed({**TRAINED_WITH, "color": "BGR"}), _photographed(TRAINED_WITH),
    ),
    Illness(
        "missing normalisation", "wrong_preprocessing", "qnn",
        _photographed({"color": "RGB", "scale": 1.0}), _photographed(TRAINED_WITH),
    ),
    Illness(
        "int8 softmax", "softmax_in_few_bits", "qnn",
        _attention(512, mask=False, config={}, spread=0.5),
        _attention(512, mask=False, config={"tensor": {"p": {"skip": True}}}, spread=0.5),
    ),
    Illness(
        "shared scale of two heads", "tied_ranges", "qnn",
        _with_heads(joined=False, config=_SHARED), _with_heads(joined=False, config={}),
    ),
    Illness("bias overflow", "bias_overflow", "qnn", _without_class(-3e7), _without_class(-30.0)),
    Illness(
        "a mask quantized by force", "mask_quantized", "qnn",
        _attention(16, mask=True, config={"force": ["mask_add"]}, spread=3.0),
        _attention(16, mask=True, config={}, spread=3.0),
    ),
)  # fmt: skip


def table(courses: list[Course]) -> str:
    """The table of the page."""
    lines = ["| illness | target | first cause | remedy | ill | treated | healthy |", "|---|---|---|---|---|---|---|"]
    for course in courses:
        best = course.diagnosis.combined
        line = "" if best is None else remedy_line(best.remedy, course.diagnosis.target)
        first = course.diagnosis.causes[0].code if course.diagnosis.causes else ""
        figures = " | ".join(f"{value:.1f} dB" for value in (course.before_db, course.after_db, course.healthy_db))
        lines.append(f"| {course.illness.name} | {course.illness.backend} | `{first}` | `{line}` | {figures} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    courses = []
    for illness in ILLNESSES:
        with tempfile.TemporaryDirectory() as folder:
            courses.append(treat(illness, Path(folder)))
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{table(courses)}{END}{rest.split(END)[1]}", encoding="utf-8")
    print(table(courses))
    return 0


if __name__ == "__main__":
    sys.exit(main())
