"""The schedule of the search: which methods each effort tries, in which order, and which of them exclude one another.

    effort 1   STAGES, then FINISH    formats for outliers, smoothing, equalization, ranges and weight scales by squared
                                      error, biases
    effort 2   FURTHER, then FINISH   the same with every equalization that there is
               ROUNDINGS[0]           roundings of weights chosen layer by layer
    effort 3   ROUNDINGS[1]           roundings and ranges chosen block by block

Where weights have less than 7 bits, effort 1 does what FURTHER has in the place of STAGES.

Stages follow one another. The methods of a stage exclude one another: all start from the same state, and the one that
the acceptance test prefers is kept, or none. `finish` comes behind the last stage. FURTHER stages begin anew with the
calibrated model, and replace what the stages have come to where that is better. Methods of the last stage that were
rejected get a second chance with `finish` behind them: scales that clip weights shift means, which a correction of
biases takes back. So do equalized channels, whose stage is `deferrable`: where a method of it is rejected alone and
gains DEFERRED_GAIN_DB with `finish` behind it, all later stages are done with it and without it.

Roundings start from the state after the stages, since a weight that was rounded once cannot be rounded otherwise. Each
result, and the state without any, is finished by `finish`, if that helps, and the best of all is the result. So an
effort tries everything that the one below tries, on the same samples, and can only score better there.

Roundings that are found layer by layer in many runs, or learnt by gradients, take most of the time. They are tried
where a model without roundings would be better than the best so far by LEAST_ROOM_DB. What moves each weight between
two numbers by gradients goes on from the best rounding, whose blocks it keeps unless it mends them: those of GPTAQ are
better than learnt ones on most small sets of samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from onnxq.ptq.method import method_name

LEVELS = (0, 1, 2, 3)
DEFAULT = 1

ENOUGH_DB = 55.0
"""Where every output has this SQNR, there is nothing to gain."""

DEFERRED_GAIN_DB = 2.0
"""What a deferred method has to gain with `finish` behind it, and may lose without, to be worth doing all that follows
twice: in four cases of four (three networks, W4A4 and W8A8) smaller gains were none on other samples."""


@dataclass(frozen=True)
class Stage:
    """Methods that exclude one another.

    deferrable   they may be rejected alone and kept with what finishes them
    one_is_enough   those behind the first that is accepted are not tried
    """

    methods: tuple[str, ...]
    deferrable: bool = False
    one_is_enough: bool = False


@dataclass(frozen=True)
class Roundings:
    """Methods of one effort that choose roundings of weights.

    slow     names of those that take most of the time, which are tried where there is room (`room.py`)
    behind   names of those that go on from the best rounding so far, if there is one
    """

    methods: tuple[str, ...]
    slow: frozenset[str] = frozenset()
    behind: frozenset[str] = frozenset()


USABLE = Stage(("outlier_placement:usable=yes",))
STAGES = (
    Stage(("outlier_placement",)),
    Stage(("insert_smoothing", "insert_smoothing:unseen=no"), one_is_enough=True),
    Stage(("cross_layer_equalization",)),
    Stage(("outlier_placement:layers=yes",)),
    USABLE,
    Stage(("range_setting:mse", "range_setting:percentile")),
    Stage(("weight_scale_search",)),
)
"""What pays most for its time: on five models (MobileNetV2, MiniLM-L6, a recognizer of text, a detector, ResNet-50) the
methods of FURTHER that are missing here took half of the time of all stages, and not one of them was kept."""

FURTHER = (
    Stage(("rotation",)),
    Stage(("outlier_placement",)),
    Stage(("smoothquant", "smoothquant:unseen=no", "awq")),
    Stage(("insert_smoothing", "insert_smoothing:unseen=no")),
    Stage(("outlier_placement:layers=yes",)),
    Stage(("cross_layer_equalization",), deferrable=True),
    USABLE,
    Stage(("high_bias_absorption",)),
    Stage(("range_setting:mse", "range_setting:percentile")),
    Stage(("weight_scale_search",)),
)
FINISH = ("bias_correction",)
ROUNDINGS = (
    Roundings(
        ("gptq", "gptaq", "gptaq:alpha=0", "adaround"),
        slow=frozenset({"gptaq", "adaround"}),
        behind=frozenset({"adaround"}),
    ),
    Roundings(
        ("adaquant", "brecq", "qdrop"),
        slow=frozenset({"adaquant", "brecq", "qdrop"}),
        behind=frozenset({"brecq", "qdrop"}),
    ),
)


@dataclass(frozen=True)
class Schedule:
    """What is tried, in order; see the module. A `preset` is that of an effort, whose parts are those below it.

    `named` are methods of a preset that a user has asked for by name.
    """

    stages: tuple[Stage, ...] = ()
    roundings: tuple[Roundings, ...] = ()
    finish: tuple[str, ...] = ()
    further: tuple[Stage, ...] = ()
    preset: bool = False
    named: frozenset[str] = frozenset()

    @classmethod
    def of_names(cls, names: Iterable[str]) -> Schedule:
        """Methods one after the other."""
        return cls(tuple(Stage((name,)) for name in names))

    def asked_for(self, asked: Mapping[str, tuple[str, ...]], rounding: frozenset[str]) -> Schedule:
        """The same with methods that a user names: method -> how it was written, once or several times.

        One that the preset has stands in its place there, with the user's arguments. Others come behind the stages, or
        behind the roundings if they are `rounding` and there are any.
        """

        def put(methods: tuple[str, ...]) -> tuple[str, ...]:
            named = (asked.get(method_name(method), (method,)) for method in methods)
            return tuple(dict.fromkeys(one for several in named for one in several))

        here = {method_name(method) for method in self.names()}
        absent = {name: written for name, written in asked.items() if name not in here}
        behind = [one for name in absent for one in absent[name] if not (name in rounding and self.roundings)]
        rounded = [one for name in absent for one in absent[name] if name in rounding and self.roundings]
        added = tuple(Stage((one,)) for one in behind)
        stages, further = (
            (*(replace(stage, methods=put(stage.methods)) for stage in every), *(added if every else ()))
            for every in (self.stages, self.further)
        )
        roundings = [replace(each, methods=put(each.methods)) for each in self.roundings]
        if roundings:
            roundings[-1] = replace(roundings[-1], methods=(*roundings[-1].methods, *rounded))
        return replace(
            self,
            stages=stages,
            further=further,
            roundings=tuple(roundings),
            finish=put(self.finish),
            named=frozenset(one for several in asked.values() for one in several),
        )

    def without(self, names: frozenset[str]) -> Schedule:
        """The same without the methods of these names."""

        def left(methods: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(method for method in methods if method_name(method) not in names)

        def left_of(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
            parts = (replace(stage, methods=left(stage.methods)) for stage in stages)
            return tuple(stage for stage in parts if stage.methods)

        roundings = (replace(each, methods=left(each.methods)) for each in self.roundings)
        return replace(
            self,
            stages=left_of(self.stages),
            further=left_of(self.further),
            roundings=tuple(roundings),
            finish=left(self.finish),
        )

    def names(self) -> list[str]:
        """Every method that is tried."""
        stages = [method for stage in (*self.stages, *self.further) for method in stage.methods]
        listed = [*stages, *(method for each in self.roundings for method in each.methods)]
        return list(dict.fromkeys([*listed, *self.finish]))


def schedule_of(effort: int, *, few_bits: bool = False) -> Schedule:
    """The preset of an effort; where weights have `few_bits`, all methods pay, and none is left for higher ones."""
    if not effort:
        return Schedule()
    stages, further = (FURTHER, ()) if few_bits else (STAGES, FURTHER if effort > 1 else ())
    return Schedule(stages, ROUNDINGS[: effort - 1], FINISH, further, preset=True)
