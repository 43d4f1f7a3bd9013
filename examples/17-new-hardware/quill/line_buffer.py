"""The lint rule: a convolution reads lines of at most 1024 values, the length of the chip's line buffer."""

from onnxq.lint import LINTS, Finding

LONGEST = 1024


@LINTS.register("quill_line_buffer")
def check_lines(graph, found, backend):
    """In files of any origin: `onnxq lint FILE -b quill/`, and after every writing."""
    for node in graph.nodes("Conv"):
        shape = graph.shape(node.inputs[0])
        width = shape[-1] if shape else None
        if isinstance(width, int) and width > LONGEST:
            text = f"node '{node.name}' reads lines of {width} values"
            yield Finding("line_buffer", node.inputs[0].name, node.name, text, f"Cut them to {LONGEST} at most")
