"""What the switches of fake-quantizers mean for files: a quantizer that is off in the net is off in the file.

In the plan it is one that is only observed, as `observe_only` of a configuration makes them: its range is known, its
values stay float, and every emitter, table and simulation knows what to do about it.
"""

from __future__ import annotations

from dataclasses import replace

from onnxq.errors import ConfigError
from onnxq.qat.net import QatNet
from onnxq.types import QuantPlan

SOURCE = "the switch of its fake-quantizer"


def switched_plan(net: QatNet) -> QuantPlan:
    """The plan of a net as its switches have left it; the plan itself where all of them are on."""
    off = [name for name in net.carried_out.placements if not net.fake_quantizer(name).quantizing]
    if not off:
        return net.plan
    if len(off) == len(net.carried_out):
        raise ConfigError(
            "every fake-quantizer of the net is switched off, so there is nothing to write: switch on with "
            "net.quantize(True), or those that are wanted with enable_fake_quant()"
        )
    placements = dict(net.plan.placements)
    for name in off:
        said = (*placements[name].set_by, ("observe_only", SOURCE))
        placements[name] = replace(placements[name], observe_only=True, edges=(), set_by=said)
    return replace(net.plan, placements=placements)


def switch_notes(net: QatNet) -> list[str]:
    """A line for the report about what is switched off."""
    off = [name for name in net.carried_out.placements if not net.fake_quantizer(name).quantizing]
    return [f"switched off in the net, and float in the files: {', '.join(off)}"] if off else []
