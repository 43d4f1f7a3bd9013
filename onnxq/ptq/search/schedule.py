"""Efforts: how much is tried, from calibration alone (0) to the reconstruction of blocks (3).

    1  seconds   channels equalized, ranges and weight scales by squared error, biases corrected
    2  minutes   roundings of weights chosen layer by layer
    3  longer    roundings and ranges chosen block by block

The stages of `prepare` follow one another. Alternatives of a stage all start from the same state; the best of them is
kept if it is better than none. Those of the last stage that were not better get a second chance with `finish` behind
them: scales that cut weights off are only good with biases that make up for it. So are equalized channels: what is
`unfinished` and promises much with `finish` behind it is gone on with beside the rest. `rounding` methods all start
from the state after `prepare`, since a weight that was rounded once cannot be rounded otherwise. Each of their results,
and the state without any, is finished by `finish`, if that helps, and the best of all is the result. So an effort tries
everything that the one below tries, on the same samples, and can only come out better where it is judged.

Reconstructing blocks takes minutes, and what it comes to shows early. So its methods are tried with a fifth of their
steps, and the best of them follows with all (`longer`), if that is near enough to the best of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

LEVELS = (0, 1, 2, 3)
DEFAULT = 1

PREPARE: tuple[tuple[str, ...], ...] = (
    ("smoothquant", "smoothquant:unseen=no", "awq"),
    ("insert_smoothing", "insert_smoothing:unseen=no"),
    ("cross_layer",),
    ("absorb_bias",),
    ("ranges:mse", "ranges:percentile"),
    ("weight_search",),
)
FINISH: tuple[str, ...] = ("bias_correction",)
UNFINISHED: tuple[str, ...] = ("cross_layer",)
"""Channels that were made small have means that rounding shifts."""
ROUNDING: tuple[tuple[str, ...], ...] = (
    ("gptq", "refit", "refit:alpha=0", "adaround"),
    ("adaquant:iterations=120", "brecq:iterations=100", "qdrop:iterations=200"),
)
"""What levels 2 and 3 add."""
LONGER: dict[str, str] = {name: name.partition(":")[0] for name in ROUNDING[1]}


@dataclass(frozen=True)
class Effort:
    """What is tried, in order; see the module.

    `rounding` has the methods of each level from 2 on, `longer` those of them that are short, with what each is short
    for. A `preset` is one of the levels, whose parts are those below it. What is `unfinished` by itself is judged with
    `finish` behind it, where it does not help alone.
    """

    prepare: tuple[tuple[str, ...], ...] = ()
    rounding: tuple[tuple[str, ...], ...] = ()
    finish: tuple[str, ...] = ()
    preset: bool = False
    longer: Mapping[str, str] = field(default_factory=dict)
    unfinished: tuple[str, ...] = ()

    def without(self, names: frozenset[str]) -> Effort:
        """The same without the improvements of these names."""

        def left(items: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(item for item in items if item.partition(":")[0] not in names)

        stages = tuple(stage for stage in map(left, self.prepare) if stage)
        return replace(self, prepare=stages, rounding=tuple(map(left, self.rounding)), finish=left(self.finish))

    def names(self) -> list[str]:
        """Every improvement that is tried."""
        listed = [item for stage in (*self.prepare, *self.rounding) for item in stage]
        longer = [self.longer[item] for item in listed if item in self.longer]
        return list(dict.fromkeys([*listed, *longer, *self.finish]))


def effort_of(level: int) -> Effort:
    """The preset of a level."""
    if level == 0:
        return Effort()
    return Effort(PREPARE, ROUNDING[: level - 1], FINISH, preset=True, longer=LONGER, unfinished=UNFINISHED)
