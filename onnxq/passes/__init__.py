"""Float graph in, equal float graph out: one pass per file, registered under the file's name.

`APPROXIMATING` names the exceptions: they change what a model computes, as a chip's tool does, and run where asked.
"""

from onnxq.passes.base import PASSES, Pass, PassReport, PassResult, run_passes
from onnxq.passes.fuse_pattern import fuse_pattern

APPROXIMATING = ("relu6_to_relu",)
"""Names of the passes that change what a model computes."""

__all__ = ["APPROXIMATING", "PASSES", "Pass", "PassReport", "PassResult", "fuse_pattern", "run_passes"]
