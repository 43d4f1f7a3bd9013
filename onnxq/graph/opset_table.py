"""Which redefinitions of ONNX operators change nothing for a node that exists already, and which cannot be followed.

Every step of every operator of the default domain from opset 7 on is in exactly one place: in one of these tables, or
among the rewrites of `opset_rewrites`. The tests walk over the whole history of the operators and hold each entry of
`WIDENED` and `EXTENDED` against the two definitions.
"""

from __future__ import annotations

FIRST_OPSET = 7
"""Steps up to this one are not known: opset 7 changed broadcasting and everything before is of another age."""

LAST_OPSET = 28
"""The newest opset whose changes are in the tables."""

_MOVERS = "Constant ConstantOfShape Flatten Identity If Loop Pad Reshape Scan Shape Size Squeeze Transpose Unsqueeze"
_REDUCTIONS = "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSumSquare"

# Same inputs, outputs, attributes and defaults. New are element types, broadcasting, negative axes, modes that had to
# be asked for, or a clearer wording of what the operator did before. Where the wording looks like a change, onnxruntime
# computes both versions alike:
#   pools: output size with auto_pad and ceil_mode;  ConvTranspose 11: the side of the odd padding with auto_pad;
#   OneHot 11: negative indices, which were not allowed;  Clip 13: min above max;  Dropout 22: the unset ratio.
WIDENED: dict[int, str] = {
    8: "Max Mean Min Sum",
    9: "Cast Constant Flatten Gemm Greater Less MatMul PRelu",
    11: "ArgMax ArgMin AveragePool Compress Concat Conv ConvTranspose Equal Flatten Gather Hardmax If LogSoftmax Loop"
    " LpPool MaxPool MaxUnpool NonMaxSuppression OneHot ReduceSum Scan Slice Softmax Split Squeeze Unsqueeze "
    + _REDUCTIONS,
    12: "Clip Max MaxPool Min Pow ReduceMax ReduceMin",
    13: "Abs Add ArgMax ArgMin Cast Ceil Clip Concat Constant DepthToSpace Div Dropout Equal Exp Expand Flatten Floor"
    " Gather GatherElements GatherND Gemm Greater Identity If IsNaN LRN Less Log Loop MatMul Max Mean"
    " MeanVarianceNormalization Min Mod Mul Neg NegativeLogLikelihoodLoss NonZero Pad Pow Reciprocal Relu Reshape"
    " ScatterElements ScatterND Shape Sigmoid Sign Size Slice SoftmaxCrossEntropyLoss SpaceToDepth Sqrt Sub Sum Tanh"
    " Tile Transpose " + _REDUCTIONS,
    14: "Add CumSum Div Identity Mul Relu Sub",
    15: "BatchNormalization Pow",
    16: "GreaterOrEqual Identity If LeakyRelu LessOrEqual Loop PRelu Scan Where",
    18: "OptionalGetElement ScatterElements ScatterND",
    19: "Constant DequantizeLinear Equal Identity If Loop Pad Reshape Resize Scan Shape Size",
    20: "ConstantOfShape IsInf IsNaN ReduceMax ReduceMin",
    21: "Cast CastLike QLinearMatMul " + _MOVERS,
    22: "Acos Acosh Asin Asinh Atan Atanh AveragePool Bernoulli Conv ConvTranspose Cos Cosh DeformConv Det Dropout Elu"
    " EyeLike GRU GlobalAveragePool GlobalLpPool GlobalMaxPool GridSample HardSigmoid HardSwish InstanceNormalization"
    " LSTM LpNormalization LpPool MaxPool MaxRoiPool MaxUnpool Mish Multinomial NegativeLogLikelihoodLoss RNN"
    " RandomNormal RandomNormalLike RandomUniform RandomUniformLike RoiAlign Round Selu Sin Sinh Softplus Softsign Tan"
    " ThresholdedRelu",
    23: "Cast CastLike " + _MOVERS,
    24: "DequantizeLinear QuantizeLinear SplitToSequence TopK " + _MOVERS,
    25: "Cast CastLike DequantizeLinear QuantizeLinear " + _MOVERS,
    28: "BitShift Cast Celu Compress DepthToSpace DequantizeLinear Einsum Mod OneHot Optional OptionalGetElement"
    " OptionalHasElement QuantizeLinear ReverseSequence Unique",
}

# New optional inputs, outputs and attributes whose absence means what the older version did.
#   Range 27: the new stash_type acts on element types that Range 11 did not have.
#   Cast 24: infinities saturate in the fnuz formats as well, which onnxruntime did before.
EXTENDED: dict[int, str] = {
    8: "MaxPool",
    10: "AveragePool MaxPool",
    11: "Constant DepthToSpace Gemm TopK",
    12: "ArgMax ArgMin Constant GatherND",
    13: "DequantizeLinear QuantizeLinear",
    14: "GRU LSTM RNN Reshape",
    15: "Shape",
    16: "ScatterElements ScatterND",
    18: "LpPool OptionalHasElement Pad Resize",
    19: "AveragePool Cast CastLike QuantizeLinear",
    21: "DequantizeLinear QuantizeLinear",
    23: "DequantizeLinear QuantizeLinear",
    24: "Attention Cast CastLike",
    25: "Attention",
    27: "Range",
    28: "SpaceToDepth",
}

REFUSED: dict[tuple[str, int], str] = {
    ("Scan", 9): "Scan 8 loops over a batch axis and takes sequence lengths; the newer Scan has neither",
}
"""(operator, version) -> why no node of the older version can become one of this version."""


def is_compatible(op: str, version: int) -> bool:
    """Whether every node valid before `version` redefined its operator means the same after it."""
    return (op, version) in _COMPATIBLE


def _steps(table: dict[int, str]) -> frozenset[tuple[str, int]]:
    return frozenset((op, version) for version, ops in table.items() for op in ops.split())


_COMPATIBLE = _steps(WIDENED) | _steps(EXTENDED)
