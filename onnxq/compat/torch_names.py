"""PyTorch's names on an ONNX graph: what a name means (`torch_lookup`) and which nodes it means (`torch_nodes`)."""

from onnxq.compat.torch_lookup import Chain, chain_of, operators_of, torch_name
from onnxq.compat.torch_nodes import nodes_of_type, type_note

__all__ = ["Chain", "chain_of", "nodes_of_type", "operators_of", "torch_name", "type_note"]
