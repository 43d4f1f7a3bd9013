"""Does a quantized model take the branches of the float model, and do its loops run as often?

What decides is computed in float from its last weighted layer on (`onnxq.place.decisions`), but that layer is rounded,
and a condition close to its threshold can still come out otherwise. Then an output is far off for a reason that no SQNR
tells. Looked at are the If and Loop nodes of the main graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from onnxq.errors import MachineError, OnnxqError
from onnxq.graph import Graph, Node
from onnxq.runtime.feeds import Feed
from onnxq.runtime.tap import Tap


class _Course(NamedTuple):
    """A node that decides, and the tensors in both models that say what it does."""

    node: str
    op: str
    original: tuple[str, ...]
    quantized: tuple[str, ...]


class Branches:
    """Counts the samples on which If and Loop nodes of two models go different ways; no runs without such nodes."""

    def __init__(self, original: Graph, quantized: Graph) -> None:
        self._courses = list(_courses(original, quantized))
        self._models = (original, quantized)
        self._taps: tuple[Tap, Tap] | None = None
        self._differ: dict[str, int] = {}
        self._not_compared: dict[str, str] = {}
        self._samples = 0

    def add(self, feed: Feed, where: str) -> frozenset[str]:
        """Run both models on one more sample; the nodes that go another way on it."""
        if not self._courses:
            return frozenset()
        try:
            before, after = (_seen(tap, feed, where) for tap in self._made_taps())
        except MachineError:
            raise
        except OnnxqError as error:  # a model that runs as it is may not run with its conditions made visible
            self._leave_out({course: str(error) for course in self._courses})
            return frozenset()
        self._samples += 1
        astray = set()
        for course in self._courses:
            pairs = zip(course.original, course.quantized, strict=True)
            if any(not np.array_equal(before[one], after[other]) for one, other in pairs):
                self._differ[course.node] = self._differ.get(course.node, 0) + 1
                astray.add(course.node)
        return frozenset(astray)

    def _made_taps(self) -> tuple[Tap, Tap]:
        if self._taps is None:
            original, quantized = self._models
            self._taps = (
                Tap(original, (name for course in self._courses for name in course.original), optimize="none"),
                Tap(quantized, (name for course in self._courses for name in course.quantized), optimize="none"),
            )
            unreachable = self._taps[0].unreachable | self._taps[1].unreachable
            names = {course: (*course.original, *course.quantized) for course in self._courses}
            reasons = {course: [unreachable[n] for n in names[course] if n in unreachable] for course in names}
            self._leave_out({course: found[0] for course, found in reasons.items() if found})
        return self._taps

    def _leave_out(self, reasons: Mapping[_Course, str]) -> None:
        self._courses = [course for course in self._courses if course not in reasons]
        self._not_compared |= {f"{course.op} '{course.node}'": reason for course, reason in reasons.items()}

    def warnings(self) -> Iterator[str]:
        for course in self._courses:
            if count := self._differ.get(course.node):
                what = "takes another branch" if course.op == "If" else "runs another number of times"
                yield (
                    f"{course.op} '{course.node}' {what} than in the float model on {count} of {self._samples} "
                    f"samples: '{course.original[0]}', which decides it, lies too close to its threshold for the "
                    "quantized layers in front of it. Leave these float (--skip)"
                )
        for node, reason in self._not_compared.items():
            yield f"{node}: not compared whether it goes the way that it goes in the float model: {reason}"


def _seen(tap: Tap, feed: Feed, where: str) -> dict[str, np.ndarray | int]:
    """Values of conditions; how many there were of those inside of a Loop, which is how often it ran."""
    return {name: np.size(values) if name in tap.flat else values for name, values in tap.run(feed, where).items()}


def _courses(original: Graph, quantized: Graph) -> Iterator[_Course]:
    for node in original.gs.nodes:
        if node.op not in ("If", "Loop") or node.domain not in (None, "", "ai.onnx"):
            continue
        if not quantized.has_node(node.name) or quantized.node(node.name).op != node.op:
            continue  # a pass has taken it away, since its condition is a constant
        before, after = _deciding(original, node), _deciding(quantized, quantized.node(node.name))
        if before and len(before) == len(after):
            yield _Course(node.name, node.op, before, after)


def _deciding(graph: Graph, node: Node) -> tuple[str, ...]:
    """The condition of an If; for a Loop the condition inside, once for each time that it runs, else its inputs."""
    if node.op == "Loop":
        going = node.attrs["body"].outputs[0]
        if graph.producer(going) is not None and not graph.is_constant(going) and graph.shape(going) == ():
            return (going.name,)
    inputs = node.inputs[: 1 if node.op == "If" else 2]
    known = set(graph.input_names)
    return tuple(t.name for t in inputs if t.name and t.name not in known and not graph.is_constant(t))
