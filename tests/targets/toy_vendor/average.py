"""Averages on the chip: the sum is multiplied by a number of 1/256."""

from onnxq.emit.simulations import SIMULATIONS
from onnxq.emit.simulations.rewrite import Rewrite, line, on_chip


@SIMULATIONS.register("shifty_average")
def simulate_average(graph, plan, qparams):
    """1 / n is rounded to 1/256."""
    notes = []
    for node in on_chip(graph, plan, "GlobalAveragePool"):
        height, width = graph.shape(node.inputs[0])[2:]
        count = height * width
        rewrite = Rewrite(graph, node)
        rewrite.finish("Mul", rewrite.constant(round(256 / count) / 256 * count))
        notes.append(line(node, f"1/{count} becomes {round(256 / count)}/256"))
    return notes
