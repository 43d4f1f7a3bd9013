"""`onnxq inspect`: what a model file holds, and what would keep it from being quantized."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from onnxq.cli import options
from onnxq.cli.console import print_json, print_pairs, print_table
from onnxq.text_tables import human_bytes

if TYPE_CHECKING:
    from onnxq.cli.facts import ModelFacts


def inspect(
    model: options.ModelArgument,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            "--shape",
            help="Count the MACs for an input of this shape, such as x=1,3,320,320. Repeatable.",
            metavar="NAME=SIZES",
        ),
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Show opsets, inputs, outputs, operators, parameters and obstacles of MODEL."""
    from onnxq.cli.facts import model_facts

    facts = model_facts(model, shape or ())
    if as_json:
        print_json(asdict(facts))
    else:
        _print(facts, shapes_given=bool(shape))


def _print(facts: ModelFacts, *, shapes_given: bool) -> None:
    from onnxq.pipeline.summary import macs_text

    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in facts.opsets.items())
    pairs = [
        ("opset", opsets),
        ("IR version", str(facts.ir_version)),
        ("producer", facts.producer or "not given"),
        ("size", human_bytes(facts.file_bytes)),
        ("parameters", f"{facts.parameters:,} in {facts.stored_tensors} tensors, {human_bytes(facts.parameter_bytes)}"),
        ("stored types", ", ".join(f"{count:,} {name}" for name, count in facts.parameters_by_type.items()) or "none"),
        ("quantized", "; ".join(facts.quantized) or "no"),
    ]
    if facts.macs:
        pairs.insert(5, ("work", f"{macs_text(facts.macs)} in one sample{_with_one(facts.assumed_one)}"))
    pairs += [("external data", path) for path in facts.external_files]
    pairs += [("metadata", f"{key} = {_shortened(value)}") for key, value in facts.metadata.items()]
    print_pairs(facts.path, pairs)
    ports = [("input", port) for port in facts.inputs] + [("output", port) for port in facts.outputs]
    rows = [(side, port.name, port.type, port.shape_text, ", ".join(port.dynamic)) for side, port in ports]
    print_table("inputs and outputs", ("", "name", "type", "shape", "dynamic"), rows)
    print_table(
        f"{sum(facts.operators.values())} nodes, those of bodies and functions included",
        (">count", "operator"),
        [(str(count), name) for name, count in facts.operators.items()],
    )
    if facts.largest:
        print_table("largest layers", ("layer", "operator", ">MACs", ">of all", ">parameters"), _layer_rows(facts))
        if facts.macs is None and not shapes_given:
            print_pairs("MACs", [("unknown", "they depend on sizes that the inputs leave open: --shape gives them")])
    blocked = [("blocked", line) for line in facts.blocking] or [("blocked", "by nothing"), ("next", _next(facts))]
    print_pairs("quantization", blocked)
    if facts.remarks:
        print_pairs("worth knowing", [("", line) for line in facts.remarks])


def _next(facts: ModelFacts) -> str:
    """The command to go on with."""
    path = shlex.quote(facts.path)
    if facts.quantized:
        return f"onnxq strip {path} -o float.onnx, or onnxq lint {path} -b TARGET"
    return f"onnxq place {path} -b TARGET, where 'onnxq list backends' has the targets"


def _layer_rows(facts: ModelFacts) -> Iterator[tuple[str, ...]]:
    for layer in facts.largest:
        known = layer.macs is not None and bool(facts.macs)
        share = f"{100 * (layer.macs or 0) / (facts.macs or 1):.1f} %" if known else ""
        yield (
            layer.name,
            layer.operator,
            f"{layer.macs:,}" if layer.macs is not None else "unknown",
            share,
            f"{layer.parameters:,}",
        )


def _with_one(sizes: Sequence[str]) -> str:
    """What was assumed about sizes that the inputs leave open."""
    return f", with {', '.join(sizes)} = 1" if sizes else ""


def _shortened(text: str) -> str:
    """One line of a metadata value; --json has all of it."""
    line = " ".join(text.split())
    return line if len(line) <= 120 else f"{line[:117]}..."
