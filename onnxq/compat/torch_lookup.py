"""Names of PyTorch's layers and functions, given as objects or as text, and the ONNX operators that they become.

PyTorch is never imported: an object tells its name itself.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

import onnx.defs

from onnxq.compat.torch_table import FLOAT_FUNCTIONAL, FUNCTIONAL, FUSED, LAYERS, OPERATOR, TENSOR
from onnxq.errors import ConfigError, did_you_mean
from onnxq.types.dialect import DIALECTS, TorchClasses

Chain = tuple[tuple[str, ...], ...]

_SPELLINGS = (
    ("torch.nn.functional.", "functional."),
    ("torch.nn.functional.", "F."),
    ("torch.nn.functional.", "torch._C._nn."),
    ("torch.nn.intrinsic.qat.", "nniqat."),
    ("torch.nn.intrinsic.", "nni."),
    ("torch.nn.qat.", "nnqat."),
    ("torch.nn.", "nn."),
    ("mqbench.nn.intrinsic.qat.", "qnniqat."),
    ("mqbench.nn.intrinsic.", "qnni."),
    ("mqbench.nn.qat.", "qnnqat."),
    ("mqbench.nn.", "qnn."),
    ("operator.", "_operator."),
    ("operator.", "builtins."),
    ("torch.Tensor.", "torch._tensor.Tensor."),
    ("torch.Tensor.", "torch._C.TensorBase."),
    ("torch.Tensor.", "torch._C._TensorBase."),
    ("torch.Tensor.", "Tensor."),
    ("torchvision.ops.", "torchvision.ops.misc."),
    ("torch.", "torch.functional."),
    ("torch.", "torch._C._VariableFunctions."),
    ("torch.", "torch.ops.aten."),
    ("torch.", "aten."),
)
"""Beginning of a full name, and one that means the same: the usual import names, and where functions really live."""

FLOAT_FUNCTIONAL_SPACE = "torch.nn.quantized.FloatFunctional"
_FLOAT_FUNCTIONAL = re.compile(r"(.*\.)?(FX)?FloatFunctional(?P<method>\.\w+)?")
"""The class, or one of its methods, by whatever name of it: the one for fx, imported as nnq, bound to a layer."""

FUNCTION_SPACES: dict[str, Mapping[str, str]] = {
    "torch.nn.functional": FUNCTIONAL,
    "torch.Tensor": TENSOR,
    "torch": TENSOR,
    "operator": OPERATOR,
    FLOAT_FUNCTIONAL_SPACE: FLOAT_FUNCTIONAL,
}
_CLASS_SPACES: dict[str, Mapping[str, str]] = {
    "torch.nn": LAYERS,
    "torch.nn.qat": LAYERS,
    "torch.nn.quantized": LAYERS | {"FloatFunctional": "Add|Mul|Concat|MatMul"},
    "torch.nn.quantizable": LAYERS,
    "torch.nn.intrinsic": FUSED,
    "torch.nn.intrinsic.qat": FUSED,
    "torchvision.ops": {"FrozenBatchNorm2d": LAYERS["FrozenBatchNorm2d"]},
}
_MQBENCH = "mqbench"
_RENAMED = {"torch.nn.functional.log_sigmoid": "torch.nn.functional.logsigmoid"}


def torch_name(thing: object) -> str:
    """The full name of a class, function or layer, or of what a text names: 'torch.nn.Upsample', 'operator.add'.

    A name without a dot is a layer, a method of a tensor or an ONNX operator ('Conv2d', 'mean', 'Conv'). Names that
    nothing is known of come back as they are.
    """
    name = thing.strip() if isinstance(thing, str) else _told_name(thing)
    if (match := _FLOAT_FUNCTIONAL.fullmatch(name)) is not None:
        return f"{FLOAT_FUNCTIONAL_SPACE}{match['method'] or ''}"
    for canonical, spelling in _SPELLINGS:
        if name.startswith(spelling):
            name = canonical + name[len(spelling) :].split(".")[0 if "aten." in spelling else -1]
            break
    name = re.sub(r"^torch\.ao\.", "torch.", name)
    name = re.sub(r"\.modules\.(\w+\.)?(?=\w+$)", ".", name)  # torch.nn.modules.conv.Conv2d
    for classes in _marked_tools():
        if classes.newer is not None:
            package, mark = classes.newer
            name = re.sub(rf"{mark}$", classes.mark, re.sub(rf"^{package}\.", f"{classes.package}.", name))
    name = _RENAMED.get(name, name)
    space, _, short = name.rpartition(".")
    if space in FUNCTION_SPACES:
        return f"{space}.{_plain(short, FUNCTION_SPACES[space])}"
    tool = _tool_of(short)
    if tool is not None and space.startswith(_MQBENCH):
        return f"{tool.package}{space.removeprefix(_MQBENCH)}.{short}"
    return name if space else _of_bare(short)


def operators_of(thing: object, where: str) -> tuple[str, ...]:
    """The ONNX operators that a layer or function may become; for a fused class, those that it begins with.

    An exporter may also write some in several small operators, and one operator may come from several functions:
    `torch_nodes.nodes_of_type` tells these apart. `where` is the key of the configuration, for the error.
    """
    return chain_of(thing, where)[0]


def chain_of(thing: object, where: str) -> Chain:
    """The operators that follow each other where a layer was: (("Conv",), ("Relu", "Clip")) for ConvReLU2d."""
    text = _text_of(thing)
    if text is None:
        raise ConfigError(_unknown(thing, where))
    return tuple(tuple(link.split("|")) for link in text.split(" > "))


def _text_of(thing: object) -> str | None:
    """The entry of a thing in the tables; a class of the user's own has that of the class it is derived from."""
    if isinstance(thing, type):
        return next((text for text in map(_entry, map(torch_name, thing.__mro__)) if text is not None), None)
    if not isinstance(thing, str) and not hasattr(thing, "__name__"):
        return _text_of(type(thing))  # a layer instead of its class
    return _entry(torch_name(thing))


def _entry(name: str) -> str | None:
    space, _, short = name.rpartition(".")
    if space == "onnx":
        return short if onnx.defs.has(short) else None
    return _names_in(space).get(_unmarked(short).removeprefix("Lazy"))


def _names_in(space: str) -> Mapping[str, str]:
    """What is known of a namespace, by short name."""
    if space.split(".")[0] in (_MQBENCH, *(tool.package for tool in _marked_tools())):
        return LAYERS | FUSED
    return FUNCTION_SPACES.get(space) or _CLASS_SPACES.get(space) or {}


@functools.cache
def _marked_tools() -> tuple[TorchClasses, ...]:
    """Tools whose classes have the names of torch's with a mark behind them."""
    return tuple(dialect.classes for _, dialect in DIALECTS.items() if dialect.classes is not None)


def _tool_of(short: str) -> TorchClasses | None:
    return next((tool for tool in _marked_tools() if short.endswith(tool.mark)), None)


def _unmarked(short: str) -> str:
    tool = _tool_of(short)
    return short if tool is None else short.removesuffix(tool.mark)


def _told_name(thing: object) -> str:
    """The name that an object has by its own account, with the module where it was defined."""
    kind = type(thing)
    if kind.__module__ == "torch._ops":  # torch.ops.aten.add and torch.ops.aten.add.Tensor
        return f"torch.ops.{thing}"
    name, owner = getattr(thing, "__qualname__", None), getattr(thing, "__objclass__", None)
    if not isinstance(name, str):
        return f"{kind.__module__}.{kind.__qualname__}"
    if "<locals>" in name or name.startswith("_VariableFunctions"):  # made by a function, or one of torch's builtins
        name = str(getattr(thing, "__name__", name))
    module = getattr(thing, "__module__", None) or getattr(owner, "__module__", None) or "torch"
    return f"{module}.{name}"


def _plain(short: str, known: Mapping[str, str]) -> str:
    """A function's name without the signs of its in-place, reflected and method forms."""
    if short in known:
        return short
    double = re.fullmatch(r"__(\w+)__", short)
    base = double[1] if double else short.removesuffix("_").removeprefix("_")  # F.threshold is called _threshold
    stems = [base, *([base[1:]] if base[:1] in ("i", "r") else [])]
    candidates = [form for stem in stems for form in (stem, f"{stem}_", "div" if stem == "truediv" else stem)]
    return next((form for form in candidates if form in known), short)


def _of_bare(short: str) -> str:
    """The full name of a thing that is named without its namespace."""
    tool = _tool_of(short)
    if tool is not None and _unmarked(short) in LAYERS | FUSED:
        return f"{tool.package}.nn.intrinsic.qat.{short}"
    spaces = ("torch.nn", "torch.nn.intrinsic", "torch.Tensor", "torch.nn.functional", "operator")
    exact = next((space for space in spaces if short in _names_in(space)), None)
    if exact is not None:
        return f"{exact}.{short}"
    for space in spaces:
        name = _plain(short, _names_in(space))
        if name in _names_in(space):
            return f"{space}.{name}"
    return f"onnx.{short}" if onnx.defs.has(short) else short


def _unknown(thing: object, where: str) -> str:
    name = torch_name(thing)
    given = thing.strip() if isinstance(thing, str) else name
    space, _, short = given.rpartition(".")
    known = _names_in(name.rpartition(".")[0])
    if known:  # suggest in the spelling that was used
        names = {
            f"{space}.{other}": other
            for other in (*known, *(f"{key}{tool.mark}" for tool in _marked_tools() for key in FUSED))
        }
    else:
        spaces = FUNCTION_SPACES | _CLASS_SPACES
        names = {f"{space}.{other}": other for space, table in spaces.items() for other in table}
    near = did_you_mean(given, [full for full, other in names.items() if did_you_mean(short, [other])], most=1)
    return (
        f"{where}: '{given}' is no layer or function of PyTorch that onnxq knows.{near} Give it by its full name, such "
        "as torch.nn.Upsample, torch.nn.functional.sigmoid or operator.add; what a class of your own contains can be "
        "named by module paths or by node names"
    )
