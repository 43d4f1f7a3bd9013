"""How the operators of two tensors fit the second to the first, before opset 7 and since.

Since opset 7 shapes broadcast as numpy's do. Before, `broadcast=1` lets the second tensor be a stretch of dimensions of
the first, which begins at `axis`, or ends with the last dimension if there is no `axis`.
"""

from __future__ import annotations

from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.registry import Kernel


def aligned(call: Call, kernel: Kernel) -> Kernel:
    """The kernel of an operator of two tensors, with the second one fitted to the first as the opset says."""
    if call.version >= 7 or not call.attribute("broadcast", 0) or not call.has_attribute("axis"):
        return kernel
    axis = call.attribute("axis")

    def run(first: Tensor, second: Tensor) -> Tensor:
        start = axis + first.ndim if axis < 0 else axis
        missing = first.ndim - start - second.ndim
        result: Tensor = kernel(first, second.reshape((*second.shape, *[1] * missing)))
        return result

    return run
