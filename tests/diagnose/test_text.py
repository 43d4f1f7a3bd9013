"""What a diagnosis says at the end of a run: a remedy that can be typed stands in front of one that takes a file."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onnxq.config import Config
from onnxq.diagnose.causes import Cause, Costly, FewBits
from onnxq.diagnose.diagnosis import Diagnosis
from onnxq.diagnose.remedy import DataChange, Remedy, Setting, Trial
from onnxq.diagnose.text import summary_lines


def diagnosis(*trials: Trial) -> Diagnosis:
    cause = Cause("few_bits", (FewBits("t0", 8),), 1.0, 20.0)
    return Diagnosis("qnn", 8, {"y": 5.0}, 5.0, (), (cause,), trials, None, "qnn", Config())


def trial(after_db: float, remedy: Remedy) -> Trial:
    return Trial(remedy, "few_bits", 5.0, after_db, True)


MANY = Remedy(settings=tuple(Setting(("tensor", f"t{number}", "dtype"), "uint16") for number in range(9)))
OPTION = Remedy(options=(("activation", "uint16"),))


def test_one_option_stands_in_front_of_many_settings_that_gain_more() -> None:
    lines = summary_lines(diagnosis(trial(25.0, MANY), trial(13.0, OPTION)))
    assert lines[1] == "remedy: -b qnn:activation=uint16: 5.0 -> 13.0 dB"
    assert lines[2].startswith("remedy: 9 settings, such as tensor.t8.dtype")
    assert lines[2].endswith("5.0 -> 25.0 dB")


def test_few_settings_are_written_out() -> None:
    few = Remedy(settings=MANY.settings[:2])
    lines = summary_lines(diagnosis(trial(25.0, few), trial(13.0, OPTION)))
    assert lines[1] == 'remedy: tensor.t0.dtype = "uint16"; tensor.t1.dtype = "uint16": 5.0 -> 25.0 dB'


def test_what_could_not_be_tried_stands_behind_what_was_and_has_no_figures() -> None:
    more = Trial(Remedy(data=DataChange("more", count=64)), "few_bits", 5.0, None, False)
    found = diagnosis(more, trial(13.0, OPTION))

    assert [one.remedy for one in found.paying] == [OPTION]
    assert summary_lines(found)[1:] == [
        "remedy: -b qnn:activation=uint16: 5.0 -> 13.0 dB",
        "remedy: calibrate on more samples, 64 or so: not tried: it takes samples that were not given",
    ]


def costly(name: str, share: float) -> Costly:
    return Costly(name, "activation", (name,), "uint8", "node", 0, 10.0, share)


@pytest.mark.parametrize(
    ("shares", "told"),
    [
        ((0.78, 0.004), "cause: 't0' (uint8) makes 78% of the noise; why was not found"),
        (
            (0.2, 0.15, 0.1, 0.05),
            "cause: no single one was found; the noise is spread over many quantizers, first 't0' (20%), 't1' (15%), "
            "'t2' (10%)",
        ),
        ((), "cause: no single one was found; the noise is spread over many quantizers"),
    ],
    ids=["one quantizer", "many", "none"],
)
def test_without_a_cause_the_costliest_quantizers_are_named(shares: tuple[float, ...], told: str) -> None:
    rows = tuple(costly(f"t{number}", share) for number, share in enumerate(shares))

    assert summary_lines(replace(diagnosis(), causes=(), costly=rows))[0] == told
