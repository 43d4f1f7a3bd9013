"""Values that travel between the stages; nothing here computes or reads files."""

from onnxq.types.backend import Backend, Limits, NodeFacts, OpRule, Option, SameScaleRule, Scheme
from onnxq.types.granularity import Granularity, PerBlock, PerChannel, PerTensor
from onnxq.types.known_as import KnownAs
from onnxq.types.plan import BiasOf, Edge, Placement, QuantPlan
from onnxq.types.qparams import QParams, QParamsTable
from onnxq.types.spec import QuantSpec

__all__ = [
    "Backend",
    "BiasOf",
    "Edge",
    "Granularity",
    "KnownAs",
    "Limits",
    "NodeFacts",
    "OpRule",
    "Option",
    "PerBlock",
    "PerChannel",
    "PerTensor",
    "Placement",
    "QParams",
    "QParamsTable",
    "QuantPlan",
    "QuantSpec",
    "SameScaleRule",
    "Scheme",
]
