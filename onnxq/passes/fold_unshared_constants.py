"""fold_constants for targets that store a weight once for all who read it.

The table of embeddings of a language model is often also the weight of its last layer, by way of a Transpose. Folding
the Transpose would give the layer a weight of its own, and the largest constant of the model would be stored twice.
"""

from __future__ import annotations

from onnxq.graph import Graph
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.fold_constants import fold


@PASSES.register("fold_unshared_constants")
def fold_unshared_constants(graph: Graph) -> PassResult:
    """What fold_constants does, except that a large weight which others read too stays one in front of layers as well.

    Large is over 16 kB.
    """
    return fold(graph, for_layers=False)
