"""Float graph in, equal float graph out: one pass per file, registered under the file's name."""

from onnxq.passes.base import PASSES, Pass, PassReport, PassResult, run_passes
from onnxq.passes.fuse_pattern import fuse_pattern

__all__ = ["PASSES", "Pass", "PassReport", "PassResult", "fuse_pattern", "run_passes"]
