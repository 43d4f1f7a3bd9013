"""Whether a layer of its own format fits into the precision of the model.

tpu-mlir has one mode for an operator: what it reads, its weight and what it makes. Integer layers of 4 and of 8 bits
can stand side by side. A float8 model is float8 throughout: tpu-mlir takes a whole table for float8 or for int8, and
converts between the two at every border, which no table describes.
"""

from __future__ import annotations

from dataclasses import dataclass

from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.targets.sophgo.dialect.nodes import Found, Model
from onnxq.targets.sophgo.dialect.precision import float_word, is_float8, is_integer
from onnxq.targets.sophgo.dialect.target import Target
from onnxq.types.fake_quantizers import FakeQuantizer


@dataclass(frozen=True)
class Fit:
    """The nodes that take the format, whether bits are to be set there, and a note about the others."""

    nodes: list[str]
    sets_bits: bool
    note: str = ""


@dataclass(frozen=True)
class Entry:
    """What an entry at `where` asks for: `mode` weight or activation, with bits and a fake-quantizer."""

    where: str
    mode: str
    bits: int | None
    fake: FakeQuantizer | None


def check_fit(entry: Entry, found: Found, model: Model) -> Fit:
    """The nodes that an entry changes; a format that the chip cannot have beside the model's is an error."""
    where, bits, fake, precision = entry.where, entry.bits, entry.fake, model.precision
    word = None if fake is None else float_word(fake)
    if fake is not None and fake.name == "nnie":
        raise ConfigError(
            f"{where}: NNIEFakeQuantize is the number format of another vendor's chips. Use LearnableFakeQuantize or "
            "FixedFakeQuantize"
        )
    if not is_integer(precision):
        _check_float(where, bits, fake, word, precision)
        return Fit(found.nodes, sets_bits=False)
    if word is not None:
        raise ConfigError(_float_in_integers(where, word, precision))
    if bits == 16:
        raise ConfigError(f"{where}.bit cannot be 16: the model is {precision}. Known: 8 and 4")
    _check_integers(where, entry.mode, bits, model.target, precision)
    if bits != 4 or entry.mode != "weight":
        return Fit(found.nodes, sets_bits=bits is not None)
    return _without_groups(where, found, model.graph)


def _check_float(where: str, bits: int | None, fake: FakeQuantizer | None, word: str | None, precision: str) -> None:
    size = 8 if is_float8(precision) else 16
    if fake is not None and word != precision:
        raise ConfigError(
            f"{where}: {fake.name} makes {word or 'integers'}, but the model is {precision} (w_fakequantize, "
            f"a_fakequantize). tpu-mlir converts at every border between the two, and no table says how. Use "
            f"{_their_name(precision)} here, or fake-quantizers for integers (LearnableFakeQuantize) in w_fakequantize "
            "and a_fakequantize"
        )
    if bits is not None and bits not in (size, 8):
        raise ConfigError(f"{where}.bit is {bits}, but the model is {precision}, which has {size} bits. Leave bit out")


def _float_in_integers(where: str, word: str, precision: str) -> str:
    if is_float8(word):
        return (
            f"{where}: {word} inside a model of {precision}: tpu-mlir converts at every border between the two, and no "
            f"table says how. Use {_their_name(word)} in w_fakequantize and a_fakequantize, or integers here"
        )
    return (
        f"{where}: {word} is a format of whole operators, not of one of their tensors. Put the module into f16_op or "
        "exclude_module_name"
    )


def _their_name(precision: str) -> str:
    names = {"F8E4M3": "E4M3FakeQuantize", "F8E5M2": "E5M2FakeQuantize", "F16": "Fp16FakeQuantize"}
    return names.get(precision, "BF16FakeQuantize")


def _check_integers(where: str, mode: str, bits: int | None, target: Target, precision: str) -> None:
    if mode == "activation" and bits == 4 and precision != "INT4":
        raise ConfigError(
            f"{where}.bit: an operator that reads 4 bits needs weights of 4 bits too. Name the layers in int4_op, or "
            "give 4 bits in w_qscheme and a_qscheme"
        )
    if mode == "weight" and bits == 8 and precision == "INT4" and not target.weight_only:
        raise ConfigError(
            f"{where}.bit: weights of 8 bits beside activations of 4 do not exist on the chip. Use int8_op"
        )
    needed = "INT4" if target.weight_only else "W4INT8"
    if mode == "weight" and bits == 4 and precision != "INT4" and needed not in target.option("precision"):
        raise ConfigError(f"{where}.bit: {_no_four_bits(target)}")


def _no_four_bits(target: Target) -> str:
    if "INT4" not in target.option("precision"):
        return f"{target.chip} has no weights of 4 bits. Use 8"
    return (
        f"{target.chip} has no layers with weights of 4 bits and activations of 8. BM1688 has them; weights alone can "
        "have 4 bits with quantmode 'weight_only' and strategy 'Transformer'"
    )


def _without_groups(where: str, found: Found, graph: Graph) -> Fit:
    """Convolutions with groups have no 4-bit form: a type leaves them at 8 bits, a name is refused."""
    grouped = [name for name in found.nodes if has_groups(graph, name)]
    if found.exact and grouped:
        raise ConfigError(
            f"{where}.bit: {', '.join(grouped)} has groups, and such a convolution has no 4-bit form. Use 8"
        )
    note = f"; not of {', '.join(grouped)}: a convolution with groups has no 4-bit form" if grouped else ""
    return Fit([name for name in found.nodes if name not in grouped], sets_bits=True, note=note)


def has_groups(graph: Graph, name: str) -> bool:
    return int(graph.node(name).attrs.get("group", 1)) > 1
