"""Whose fault it is that onnxruntime refuses a model: the user's who gave it, or onnxq's that has made it.

What onnxq runs are models of its own: with more outputs, with quantizers, with the operators of a chip. Where
onnxruntime loads and runs the float model on the same samples, the user can do nothing about a refusal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from onnxq.errors import InternalError, MachineError, OnnxqError
from onnxq.graph import Graph
from onnxq.runtime.feeds import Feed
from onnxq.runtime.messages import named_nodes
from onnxq.runtime.session import float_session, onnxruntime_errors, run_session


@contextmanager
def own_fault(original: Graph, dataset: Iterable[Feed] | None) -> Iterator[None]:
    """Around work with models that onnxq makes of `original`: what onnxruntime refuses there becomes an InternalError.

    An error stays what it is if the float model fails on the samples as well.
    """
    try:
        yield
    except OnnxqError as error:
        if isinstance(error.__cause__, onnxruntime_errors()) and not isinstance(error, InternalError | MachineError):
            raise_own_fault(error, original, dataset)
        raise


def raise_own_fault(error: OnnxqError, original: Graph, dataset: Iterable[Feed] | None) -> None:
    """Raise an InternalError if the float model does not share `error`, a refusal to load or run a model made of it."""
    if not runs(original, dataset):
        return
    raise InternalError(
        f"onnxruntime refuses a model that onnxq has made: {error}. It runs the float model on the same data, so "
        f"this is a fault of onnxq, and not of the model. {_way_out(str(error), original)}"
    ) from error


def runs(graph: Graph, dataset: Iterable[Feed] | None) -> bool:
    """Whether onnxruntime loads a model, and runs it on every sample."""
    try:
        session = float_session(graph, optimize="none")
        for number, feed in enumerate(dataset or ()):
            run_session(session, graph.output_names, feed, f"sample {number}")
    except OnnxqError:
        return False
    return True


def _way_out(message: str, original: Graph) -> str:
    known = next((name for name in named_nodes(message) if original.has_node(name)), None)
    if known is None:
        return "Until it is fixed, leaving nodes float with --skip PATTERN may avoid it"
    return f"Until it is fixed, leaving the node float with --skip '{known}' may avoid it"
