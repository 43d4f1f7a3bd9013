"""Half precision for what is not quantized: which nodes, judged on data, and a graph that computes so."""

from onnxq.half.convert import round_to_half, to_half
from onnxq.half.judge import judge_rest
from onnxq.half.kinds import HalfKind, half_kind, opset_for, rounded_scales

__all__ = ["HalfKind", "half_kind", "judge_rest", "opset_for", "round_to_half", "rounded_scales", "to_half"]
