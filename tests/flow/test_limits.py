"""What fails a run: outputs and parts below the limit or silent, in the written model and on the chip."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import onnxq
from onnxq.config import read_config
from onnxq.demo import load_data, model_path
from onnxq.pipeline import written
from onnxq.verify import ChecksFailed, Failure, FailureKind, OutputCheck, ResultCheck, VerifyReport, below_limit
from onnxq.verify.results import ResultSums

SILENT = ResultCheck("logits[:, 4:10]", "logits", 0.0, silent=True)
LOW = ResultCheck("logits[:, 4:10]", "logits", 2.0)


@pytest.mark.parametrize(("part", "kind"), [(SILENT, FailureKind.SILENT), (LOW, FailureKind.LOW)])
def test_a_part_that_is_lost_on_the_chip_alone_fails_the_run(
    part: ResultCheck, kind: FailureKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated = OutputCheck("logits", 30.0, cosine=1.0, parts=(part,))
    monkeypatch.setattr(written, "_simulated", lambda *arguments: (simulated,))
    data = {"image": load_data().calibration[:4]}
    with pytest.raises(ChecksFailed, match=r"logits\[:, 4:10\].* on the chip, as simulated") as raised:
        onnxq.quantize(model_path(), backend="tensorrt", data=data, out=tmp_path / "out", config={"effort": 0})
    (failure,) = raised.value.failures
    assert (failure.kind, failure.result, failure.sqnr_db) == (kind, part.name, part.sqnr_db)
    assert [result.name for result in raised.value.results] == ["logits"]
    assert not (tmp_path / "out" / "model.onnx").exists()


def test_a_limit_below_zero_lets_silence_pass_with_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = OutputCheck("logits", 30.0, cosine=1.0, parts=(SILENT,))
    monkeypatch.setattr(written, "_simulated", lambda *arguments: (simulated,))
    result = onnxq.quantize(
        model_path(),
        backend="tensorrt",
        data={"image": load_data().calibration[:4]},
        out=tmp_path / "out",
        config={"effort": 0, "minimum_sqnr_db": -1.0},
    )
    assert "part 'logits[:, 4:10]' is silent on the chip, as simulated" in result.report["warnings"]
    assert result.report["simulated_sqnr_db"] == {"logits": 30.0, "logits[:, 4:10]": 0.0}


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (FailureKind.LOW, "a lower minimum_sqnr_db"),
        (FailureKind.SILENT, "a minimum_sqnr_db below 0"),
        (FailureKind.MODEL_IO, None),
    ],
)
def test_advice_follows_the_kind_of_a_failure_and_not_its_words(kind: FailureKind, advice: str | None) -> None:
    report = VerifyReport(1, 0.0, failures=(Failure(kind, "below the required 5 dB"),))
    with pytest.raises(ChecksFailed) as raised:
        written.fail_on(report, ())
    assert ("to have the files all the same" in str(raised.value)) is (advice is not None)
    assert advice is None or advice in str(raised.value)
    written.fail_on(VerifyReport(1, 0.0), ("a warning",))


def _of(*noise: float) -> ResultCheck:
    sums = ResultSums()
    for number, value in enumerate(noise):
        sums.add(number, np.float32([2.0, 0.0]), np.float32([2.0, value]))
    return sums.check("y", "y")


def test_a_standard_error_is_what_samples_leave_open() -> None:
    even, one = _of(1.0, 1.0, 1.0, 1.0).samples, _of(2.0, 0.0, 0.0, 0.0).samples
    assert even is not None
    assert one is not None
    assert even.margin_db == 0
    assert one.margin_db == pytest.approx(10 * np.log10(2)), "the standard error of such a sum is the sum itself"


@pytest.mark.parametrize("surely", [True, False])
def test_the_limit_of_nobody_is_not_passed_by_luck(surely: bool) -> None:
    even, one = _of(1.0, 1.0, 1.0, 1.0), _of(2.0, 0.0, 0.0, 0.0)
    assert even.sqnr_db == one.sqnr_db == pytest.approx(6.02, abs=0.01)
    assert list(below_limit([even], 5.0, surely=surely)) == []
    found = [failure.kind for failure in below_limit([one], 5.0, surely=surely)]
    assert found == ([FailureKind.LOW] if surely else [])


def test_a_limit_that_somebody_sets_is_held_against_the_figure() -> None:
    assert written.limit_is_ours(read_config({}))
    assert not written.limit_is_ours(read_config({"minimum_sqnr_db": 5.0}))
