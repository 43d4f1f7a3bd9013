"""The simulation: the chip multiplies a sum by a whole number of 1/100 where an average divides it."""

from onnxq.emit.simulations import SIMULATIONS
from onnxq.emit.simulations.rewrite import Rewrite, line, on_chip


@SIMULATIONS.register("quill_averages")
def simulate_averages(graph, plan, qparams):
    """1 / n becomes round(100 / n) / 100."""
    notes = []
    for node in on_chip(graph, plan, "GlobalAveragePool"):
        height, width = graph.shape(node.inputs[0])[2:]
        count = height * width
        rewrite = Rewrite(graph, node)
        rewrite.finish("Mul", rewrite.constant(round(100 / count) / 100 * count))
        notes.append(line(node, f"1/{count} becomes {round(100 / count)}/100"))
    return notes
