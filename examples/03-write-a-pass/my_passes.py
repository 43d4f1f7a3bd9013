"""Two passes of one's own: a rewrite with the graph API, and a pattern that stays float as a whole."""

import numpy as np

from onnxq.graph import Graph
from onnxq.passes import PASSES, PassResult, fuse_pattern


@PASSES.register("mean_of_image")
def mean_of_image(graph: Graph) -> PassResult:
    """Flatten(GlobalAveragePool(x)) -> ReduceMean(x) over height and width."""
    result = PassResult()
    for match in graph.find("GlobalAveragePool -> Flatten"):
        pool, flatten = match.nodes
        image = pool.inputs[0]
        if len(graph.shape(image) or ()) != 4 or flatten.attrs.get("axis", 1) != 1:
            result.declined.append(f"node '{flatten.name}': not a batch of images")
            continue
        if graph.opset < 18:  # from then on the axes are an input
            new = graph.replace(match, "ReduceMean", [image], attrs={"axes": [2, 3], "keepdims": 0})
        else:
            axes = graph.add_constant("axes", np.array([2, 3]))
            new = graph.replace(match, "ReduceMean", [image, axes], attrs={"keepdims": 0})
        result.changed.append(f"node '{new.name}': now a ReduceMean")
    return result


PASSES.add("keep_head_float", fuse_pattern("Head", "GlobalAveragePool -> Flatten -> Gemm"))
