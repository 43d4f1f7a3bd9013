"""`onnxq inspect`: what a model file holds, and what would keep it from being quantized."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from onnxq.cli import options
from onnxq.cli.console import human_bytes, print_json, print_pairs, print_table

if TYPE_CHECKING:
    from onnxq.cli.facts import ModelFacts


def inspect(model: options.ModelArgument, as_json: options.JsonOption = False) -> None:
    """Show opsets, inputs, outputs, operators, parameters and obstacles of MODEL."""
    from onnxq.cli.facts import model_facts

    facts = model_facts(model)
    if as_json:
        print_json(asdict(facts))
    else:
        _print(facts)


def _print(facts: ModelFacts) -> None:
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
    print_pairs("quantization", [("blocked", line) for line in facts.blocking] or [("blocked", "by nothing")])
    if facts.remarks:
        print_pairs("worth knowing", [("", line) for line in facts.remarks])


def _shortened(text: str) -> str:
    """One line of a metadata value; --json has all of it."""
    line = " ".join(text.split())
    return line if len(line) <= 120 else f"{line[:117]}..."
