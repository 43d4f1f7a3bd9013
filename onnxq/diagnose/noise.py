"""Which quantizers cost most: each alone while everything else is float, within a number of runs.

Where there are more quantizers than runs, those with the most noise at their own tensors are scored one by one, and the
others in groups of neighbours, the noisiest of which are cut into halves while there are runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from onnxq.diagnose.causes import Costly
from onnxq.diagnose.look import Seen
from onnxq.graph import Graph
from onnxq.mixed_precision.parts import Part, alone, quantizers
from onnxq.mixed_precision.study import noise
from onnxq.numerics import fake_quantize
from onnxq.ptq.method import State
from onnxq.ptq.search.evaluator import HIGHEST_DB, LOWEST_DB, Score

ScoreOf = Callable[[State], Score]
Say = Callable[[int, int], None]
Suspicion = Callable[[Part], float]
"""How noisy a quantizer may be."""

MOST_NUMBERS = 2**22
"""Constants with more of them are not quantized to see what that does."""


def worst_db(score: Score) -> float:
    """The lowest signal to noise ratio of all outputs and parts of outputs."""
    return min((min(max(value, LOWEST_DB), HIGHEST_DB) for value in score.sqnr_db.values()), default=HIGHEST_DB)


def costliest(
    state: State,
    score: ScoreOf,
    runs: int,
    suspicion: Suspicion = lambda part: 0.0,
    say: Say = lambda done, total: None,
) -> tuple[Costly, ...]:
    """The quantizers of a model by the noise that each makes alone, the most first; with few runs only the noisiest.

    `suspicion` says without a run how noisy a quantizer may be: where runs are few, the most suspicious are scored, and
    the others together.
    """
    graph, plan = state.graph, state.plan.active
    places = {node.name: number for number, node in enumerate(graph.nodes())}
    parts = sorted(quantizers(plan), key=lambda part: (_place(graph, part.name, places)[1], part.name))
    done = 0
    total = min(len(parts), runs)

    def measured(part: Part) -> Score:
        nonlocal done
        done += 1
        say(done, total)
        return score(replace(state, plan=alone(graph, plan, part)))

    scores: list[tuple[Part, Score]] = []
    rest = 0.0  # noise of groups that were not looked into
    if len(parts) > runs:
        order = {part.name: number for number, part in enumerate(parts)}
        ranked = sorted(parts, key=lambda part: (-suspicion(part), order[part.name]))
        chosen, others = ranked[: runs // 2], sorted(ranked[runs // 2 :], key=lambda part: order[part.name])
        scores = [(part, measured(part)) for part in chosen]
        single, rest = _looked_into(others, measured, lambda: runs - done, max(1, runs // 4))
        scores += single
        parts = []
    scores += [(part, measured(part)) for part in parts]
    everything = rest + sum(noise(found) for _, found in scores)
    rows = []
    for part, found in scores:
        node, position = _place(graph, part.name, places)
        rows.append(
            Costly(
                part.name,
                part.kind,
                tuple(part.share),
                plan[part.name].spec.dtype,
                node,
                position,
                worst_db(found),
                noise(found) / everything if everything else 0.0,
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.share, row.position, row.name)))


def _looked_into(
    parts: Sequence[Part], measured: Callable[[Part], Score], left: Callable[[], int], count: int
) -> tuple[list[tuple[Part, Score]], float]:
    """Single quantizers of the noisiest groups, and the noise of the groups that there were no runs for.

    Groups of neighbours are scored together; then, as long as there are runs, the noisiest is cut into halves.
    """
    scored = [(group, measured(_joined(group))) for group in _groups(parts, count)]
    while left() >= 2 and any(len(group) > 1 for group, _ in scored):
        noisiest = max((item for item in scored if len(item[0]) > 1), key=lambda item: noise(item[1]))
        scored.remove(noisiest)
        scored += [(half, measured(_joined(half))) for half in _groups(noisiest[0], 2)]
    single = [(group[0], found) for group, found in scored if len(group) == 1]
    return single, sum(noise(found) for group, found in scored if len(group) > 1)


def local_noise(state: State, seen: Mapping[str, Seen]) -> Suspicion:
    """The noise of a quantizer at its own tensors, of their signal: what comes of it further on is not in it."""

    def suspicion(part: Part) -> float:
        return max((_relative(state, name, seen.get(name)) for name in part.share), default=0.0)

    return suspicion


def _relative(state: State, name: str, seen: Seen | None) -> float:
    parameters = state.qparams[name]
    if state.graph.is_constant(name):
        values = state.graph.values(name).astype(np.float32)
        if values.size > MOST_NUMBERS:  # tables of words
            return 0.0
        counts: np.ndarray | float = 1.0
    elif seen is not None and parameters.scale.ndim == 0:
        values, counts = seen.bins.middle.astype(np.float32), seen.bins.count.astype(np.float64)
    else:
        return 0.0
    error = values.astype(np.float64) - fake_quantize(values, parameters)
    signal = float(np.sum(counts * np.square(values, dtype=np.float64)))
    return float(np.sum(counts * np.square(error))) / signal if signal > 0 else 0.0


def _groups(parts: Sequence[Part], count: int) -> list[Sequence[Part]]:
    size = -(-len(parts) // count)
    return [parts[start : start + size] for start in range(0, len(parts), size)]


def _joined(parts: Sequence[Part]) -> Part:
    return Part("", "", {name: edges for part in parts for name, edges in part.share.items()}, ())


def _place(graph: Graph, tensor: str, places: dict[str, int]) -> tuple[str, int]:
    """The node that makes a tensor, or reads it first, and its number in the order of the graph; -1 for inputs."""
    maker = graph.producer(tensor)
    if maker is not None and maker.name in places:
        return maker.name, places[maker.name]
    if not graph.is_constant(tensor):
        return "", -1
    readers = [(places[use.node.name], use.node.name) for use in graph.consumers(tensor) if use.node.name in places]
    return (min(readers)[1], min(readers)[0]) if readers else ("", -1)
