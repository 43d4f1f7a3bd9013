"""A vision transformer in small: patches as tokens, pre-norm blocks of attention and GELU, the mean of the tokens.

The file has what exporters write: MatMul and Add for a fully connected layer, GELU in five nodes, Reshape and Transpose
around the heads.
"""

from __future__ import annotations

import math

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import nn
from torch.nn import functional

from tools.bench.torch_networks import PRODUCER
from tools.written_networks import GraphWriter

PATCH, IMAGE = 7, 28
TOKENS = (IMAGE // PATCH) ** 2
WIDTH, HEADS, LAYERS = 64, 4, 4


class TransformerWriter(GraphWriter):
    """The layers of a transformer, under the names of their modules."""

    def integers(self, name: str, *values: int) -> str:
        self.initializers.append(numpy_helper.from_array(np.array(values, dtype=np.int64), name))
        return name

    def linear(self, name: str, layer: nn.Linear, x: str, output: str | None = None) -> str:
        product = self.node("MatMul", f"{name}.matmul", [x, self.constant(f"{name}.weight", layer.weight.T)])
        return self.node("Add", f"{name}.add", [product, self.constant(f"{name}.bias", layer.bias)], output)

    def layer_norm(self, name: str, layer: nn.LayerNorm, x: str) -> str:
        constants = [self.constant(f"{name}.weight", layer.weight), self.constant(f"{name}.bias", layer.bias)]
        return self.node("LayerNormalization", name, [x, *constants], axis=-1, epsilon=layer.eps)

    def gelu(self, name: str, x: str) -> str:
        root, one, half = (
            self.constant(f"{name}.{key}", value)
            for key, value in (("root", math.sqrt(2)), ("one", 1.0), ("half", 0.5))
        )
        bell = self.node("Erf", f"{name}.erf", [self.node("Div", f"{name}.div", [x, root])])
        product = self.node("Mul", f"{name}.mul", [x, self.node("Add", f"{name}.plus", [bell, one])])
        return self.node("Mul", f"{name}.halve", [product, half])

    def heads(self, name: str, x: str, order: tuple[int, ...]) -> str:
        """[batch, tokens, width] -> [batch, heads, tokens, part], or the last two exchanged, as `order` says."""
        shape = self.integers(f"{name}.shape", 0, TOKENS, HEADS, WIDTH // HEADS)
        return self.node(
            "Transpose", f"{name}.turn", [self.node("Reshape", f"{name}.split", [x, shape])], perm=list(order)
        )


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        q, k, v = (layer(y).unflatten(2, (HEADS, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value))
        weights = (q @ k.transpose(2, 3) / math.sqrt(WIDTH // HEADS)).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))

    def write(self, to: TransformerWriter, name: str, x: str) -> str:
        y = to.layer_norm(f"{name}.norm1", self.norm1, x)
        q = to.heads(f"{name}.query", to.linear(f"{name}.query", self.query, y), (0, 2, 1, 3))
        k = to.heads(f"{name}.key", to.linear(f"{name}.key", self.key, y), (0, 2, 3, 1))
        v = to.heads(f"{name}.value", to.linear(f"{name}.value", self.value, y), (0, 2, 1, 3))
        root = to.constant(f"{name}.root", math.sqrt(WIDTH // HEADS))
        scores = to.node("Div", f"{name}.scale", [to.node("MatMul", f"{name}.scores", [q, k]), root])
        mixed = to.node("MatMul", f"{name}.mix", [to.node("Softmax", f"{name}.softmax", [scores], axis=-1), v])
        turned = to.node("Transpose", f"{name}.back", [mixed], perm=[0, 2, 1, 3])
        joined = to.node("Reshape", f"{name}.join", [turned, to.integers(f"{name}.joined", 0, TOKENS, WIDTH)])
        x = to.node("Add", f"{name}.residual1", [x, to.linear(f"{name}.out", self.out, joined)])
        y = to.linear(f"{name}.up", self.up, to.layer_norm(f"{name}.norm2", self.norm2, x))
        y = to.linear(f"{name}.down", self.down, to.gelu(f"{name}.gelu", y))
        return to.node("Add", f"{name}.residual2", [x, y])


class PatchTransformer(nn.Module):
    """A classifier of 28x28 images."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, WIDTH, PATCH, PATCH)
        self.position = nn.Parameter(torch.randn(1, TOKENS, WIDTH) * 0.02)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.classifier = nn.Linear(WIDTH, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.position
        for block in self.blocks:
            x = block(x)
        return self.classifier(self.norm(x).mean(1))

    def to_onnx(self) -> onnx.ModelProto:
        write = TransformerWriter()
        constants = [write.constant(f"patches.{key}", value) for key, value in self.patches.named_parameters()]
        x = write.node("Conv", "patches", ["image", *constants], kernel_shape=[PATCH] * 2, strides=[PATCH] * 2)
        x = write.node("Reshape", "tokens", [x, write.integers("tokens.shape", 0, WIDTH, TOKENS)])
        x = write.node("Transpose", "tokens.turn", [x], perm=[0, 2, 1])
        x = write.node("Add", "position.add", [x, write.constant("position", self.position)])
        for number, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            x = block.write(write, f"blocks.{number}", x)
        x = write.node("ReduceMean", "mean", [write.layer_norm("norm", self.norm, x)], axes=[1], keepdims=0)
        write.linear("classifier", self.classifier, x, "logits")
        return write.model("patches", (1, IMAGE, IMAGE), self.classifier.out_features, producer=PRODUCER)
