"""Which quantizers cost most: each alone while everything else is float, within a number of runs.

Where there are more quantizers than runs, neighbours in the order of the graph are quantized together first, and only
the members of the noisiest groups one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from onnxq.bits.parts import Part, alone, quantizers
from onnxq.bits.study import noise
from onnxq.diagnose.causes import Costly
from onnxq.graph import Graph
from onnxq.improve.judge import HIGHEST_DB, LOWEST_DB, Score
from onnxq.improvement import State
from onnxq.types.applied import applied

ScoreOf = Callable[[State], Score]
Say = Callable[[int, int], None]


def worst_db(score: Score) -> float:
    """The lowest signal to noise ratio of all outputs and parts of outputs."""
    return min((min(max(value, LOWEST_DB), HIGHEST_DB) for value in score.sqnr_db.values()), default=HIGHEST_DB)


def costliest(state: State, score: ScoreOf, runs: int, say: Say = lambda done, total: None) -> tuple[Costly, ...]:
    """The quantizers of a model by the noise that each makes alone, the most first; with few runs only the noisiest."""
    graph, plan = state.graph, applied(state.plan)
    places = {node.name: number for number, node in enumerate(graph.nodes())}
    parts = sorted(quantizers(plan), key=lambda part: (_place(graph, part.name, places)[1], part.name))
    done = 0
    total = min(len(parts), runs)

    def measured(part: Part) -> Score:
        nonlocal done
        done += 1
        say(done, total)
        return score(replace(state, plan=alone(graph, plan, part)))

    everything = 0.0
    if len(parts) > runs:
        groups = _groups(parts, max(2, runs // 2))
        noises = [(noise(measured(_joined(group))), number) for number, group in enumerate(groups)]
        everything = sum(value for value, _ in noises)
        chosen: list[Part] = []
        for _, number in sorted(noises, key=lambda item: (-item[0], item[1])):
            if done + len(chosen) + len(groups[number]) > runs and chosen:
                break
            chosen += groups[number]
        parts = chosen
    scores = [(part, measured(part)) for part in parts]
    everything = everything or sum(noise(found) for _, found in scores)
    rows = []
    for part, found in scores:
        node, position = _place(graph, part.name, places)
        rows.append(
            Costly(
                part.name,
                part.kind,
                tuple(part.share),
                str(plan[part.name].spec).partition(",")[0],
                node,
                position,
                worst_db(found),
                noise(found) / everything if everything else 0.0,
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.share, row.position, row.name)))


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
