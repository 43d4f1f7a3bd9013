"""What report.html holds, without a browser: data that is whole, safe and the same for the same files."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnxq
from onnxq.errors import SpecError
from onnxq.page.document import page_text, read_page
from onnxq.page.histogram import BINS, Histogram
from onnxq.page.inputs import inputs_json, png, thumbnail
from onnxq.page.numbers import packed, short
from onnxq.page.verdict import verdict_json
from onnxq.page.weights import weight_json
from onnxq.pipeline.further_commands import bench_command, report_command
from onnxq.pipeline.judgement import Light, light_of
from onnxq.types import PerChannel, QParams, QuantSpec
from tests.golden_graphs import GOLDEN


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    golden = GOLDEN["residual"]()
    out = tmp_path_factory.mktemp("full")
    config = {"effort": 0, "report": "full"}
    onnxq.quantize(golden.model, backend="onnxruntime", data=golden.samples, out=out, config=config)
    return out


@pytest.fixture(scope="module")
def data(full: Path) -> dict:
    return read_page(full / "report.html")


def test_every_node_is_there_with_its_state_and_reason(full: Path, data: dict) -> None:
    plan = json.loads((full / "plan.json").read_text())["nodes"]
    nodes, texts = data["model"]["nodes"], data["model"]["texts"]
    states = dict(zip(nodes["name"], nodes["state"], strict=True))
    assert {name for name, state in states.items() if state == 0} == set(plan["quantized"])
    assert {name for name, state in states.items() if state == 1} == set(plan["fused"])
    reasons = {name: texts[reason] for name, reason in zip(nodes["name"], nodes["reason"], strict=True)}
    assert all(reasons[name] for name in plan["float"])


def test_every_quantized_tensor_has_its_range_and_a_histogram(full: Path, data: dict) -> None:
    placements = json.loads((full / "plan.json").read_text())["tensors"]
    computed = [name for name, one in placements.items() if one["role"] in ("activation", "output")]
    layers = data["measured"]["layers"]["tensors"]
    assert computed
    for name in computed:
        assert sum(layers[name]["histogram"]["counts"]) > 0, name
        assert float(layers[name]["own_db"]) > 10, name
    leaders = [name for name in computed if "observe" in placements[name]]
    for name in leaders:
        seen = data["measured"]["observed"][name]
        assert seen["low"] <= seen["high"]
        assert 0 <= seen["peaks"][0][1] < 16  # the sample that set the range
    weights = [name for name, one in placements.items() if one["role"] == "weight"]
    assert set(weights) == set(data["model"]["weights"])


def test_noise_at_an_output_is_that_of_the_report(full: Path, data: dict) -> None:
    """On two of the sixteen samples, so to a few dB."""
    (name, db), *_ = json.loads((full / "report.json").read_text())["sqnr_db"].items()
    assert float(data["measured"]["layers"]["tensors"][name]["sqnr_db"]) == pytest.approx(db, abs=6)


def test_work_is_counted_for_every_layer(data: dict) -> None:
    assert set(data["measured"]["macs"]) == {
        name
        for name, op in zip(data["model"]["nodes"]["name"], data["model"]["nodes"]["op"], strict=True)
        if data["model"]["texts"][op] in ("Conv", "Gemm", "MatMul")
    }
    assert all(value > 0 for value in data["measured"]["macs"].values())


def test_a_click_says_what_explain_says(full: Path, data: dict) -> None:
    from onnxq.place.explanation import Decisions
    from onnxq.types import QuantPlan

    plan = QuantPlan.from_json(json.loads((full / "plan.json").read_text()))
    texts, nodes = data["model"]["texts"], data["model"]["nodes"]
    name = next(iter(plan.quantized))
    facts = [texts[number] for number in nodes["facts"][nodes["name"].index(name)]]
    state = next(fact for fact in Decisions(plan).node(name).facts if fact[0] == "quantized")
    assert facts[: len(state)] == list(state)


def test_nothing_of_it_is_fetched(full: Path) -> None:
    page = (full / "report.html").read_text()
    assert "default-src 'none'" in page
    outside = re.sub(r"data:image/png", "", page)
    assert not re.search(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", outside)
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page


def test_names_cannot_leave_the_data() -> None:
    hostile = "</script><script>alert(1)</script>\u2028[red]\x1b[31m" + "x" * 300
    page = page_text({"format": "onnxq-page", "name": hostile}, hostile)
    assert "alert(1)" not in re.sub(r"&lt;script&gt;alert\(1\)&lt;/script&gt;", "", page)
    assert "\x1b" not in page
    assert "\u2028" not in page


def test_the_data_of_a_page_is_read_back(tmp_path: Path) -> None:
    data = {"format": "onnxq-page", "name": "</script>\ud800"}
    (tmp_path / "page.html").write_text(page_text(data, "t"))
    assert read_page(tmp_path / "page.html") == data
    for wrong in ("", "<html></html>", page_text({"format": "other"}, "t"), '<script id="data">AAAA</script>'):
        (tmp_path / "wrong.html").write_text(wrong)
        with pytest.raises(SpecError):
            read_page(tmp_path / "wrong.html")


def test_quick_runs_no_model_and_no_leaves_nothing(tmp_path: Path) -> None:
    golden = GOLDEN["residual"]()
    for level in ("quick", "no"):
        config = {"effort": 0, "report": level}
        out = tmp_path / level
        result = onnxq.quantize(golden.model, backend="tensorrt", data=golden.samples, out=out, config=config)
        assert (
            (str(out / "report.html") in result.report["files"]) == (level == "quick") == (out / "report.html").exists()
        )
    data = read_page(tmp_path / "quick" / "report.html")
    assert data["measured"]["layers"] is None
    assert data["measured"]["observed"]
    assert data["model"]["weights"]


def test_a_fault_of_the_page_costs_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("drawing")

    monkeypatch.setattr("onnxq.page.write.write_page", fail)
    golden = GOLDEN["residual"]()
    result = onnxq.quantize(
        golden.model, backend="onnxruntime", data=golden.samples, out=tmp_path, config={"effort": 0}
    )
    assert any("report.html was not written: ZeroDivisionError: drawing" in line for line in result.report["warnings"])
    assert {Path(path).name for path in result.report["files"]} == {path.name for path in tmp_path.iterdir()}
    assert not (tmp_path / "report.html").exists()


# ---- parts ---------------------------------------------------------------------------------------------------------


def test_a_histogram_keeps_every_value_when_it_grows() -> None:
    rng = np.random.default_rng(0)
    parts = [rng.normal(0, spread, 1000).astype(np.float32) for spread in (1, 30, 0.01)]
    whole = Histogram.of(parts[0])
    assert whole is not None
    for part in parts[1:]:
        more = Histogram.of(part)
        assert more is not None
        whole.add(more)
    together = np.concatenate(parts)
    assert whole.counts.sum() == pytest.approx(3000)
    assert (whole.low, whole.high) == pytest.approx((together.min(), together.max()))
    expected, _ = np.histogram(together, BINS, (whole.low, whole.high))
    assert np.abs(np.cumsum(whole.counts) - np.cumsum(expected)).max() < 120


def test_a_range_of_neighbouring_numbers_has_a_histogram_too() -> None:
    found = Histogram.of(np.array([1.0, np.nextafter(np.float32(1), np.float32(2))], np.float32))
    assert found is not None
    assert found.counts.sum() == 2
    tiny = Histogram.of(np.array([0.0, 5e-324]))
    assert tiny is not None
    assert tiny.counts.sum() == 2


@pytest.mark.parametrize("value", [2.5, np.nan])
def test_constants_and_what_is_not_finite(value: float) -> None:
    found = Histogram.of(np.full(7, value, np.float32))
    assert (found is None) == np.isnan(value)
    assert found is None or found.counts.sum() == 7


def test_dead_channels_are_those_that_are_zero_or_round_to_it() -> None:
    weight = np.ones((4, 9), np.float32)
    weight[1], weight[2] = 0, 0.003
    found = weight_json(weight, QParams(QuantSpec("int8"), np.float32(1 / 127), np.int32(0)))
    assert (found["zero"], found["vanishing"]) == ([1], [2])
    per_channel = QParams(
        QuantSpec("int8", granularity=PerChannel(0)), np.full(4, 1e-4, np.float32), np.zeros(4, np.int32)
    )
    assert weight_json(weight, per_channel)["vanishing"] == []


def test_numbers_of_charts_are_near_enough() -> None:
    values = np.array([0, -1.5, 3.1415927, 1e-20, -7e15], np.float32)
    halves = np.frombuffer(base64.b64decode(packed(values)), "<u2").astype(np.uint32) << 16
    assert np.allclose(halves.view(np.float32), values, rtol=0.004, atol=0)
    assert [short(value) for value in (np.inf, 1.23456789, 5.0, None)] == ["inf", 1.2346, 5, None]


def test_images_become_pictures_and_other_inputs_do_not() -> None:
    shades = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)
    raw = png(shades)
    assert struct.unpack(">II", raw[16:24]) == (5, 4)
    size = struct.unpack(">I", raw[33:37])[0]
    lines = zlib.decompress(raw[41 : 41 + size])
    assert lines[1:16] == shades[0].tobytes()
    assert thumbnail(np.zeros((1, 3, 224, 224), np.float32)) is not None
    assert thumbnail(np.zeros((1, 224, 224, 3), np.uint8)) is not None
    for other in (
        np.zeros((1, 128), np.int64),
        np.zeros((1, 3, 4, 4), np.float32),
        np.zeros((1, 64, 32, 32), np.float32),
    ):
        assert thumbnail(other) is None
    found = inputs_json([{"x": np.array([1.0, np.nan, 3.0], np.float32), "t": np.array(["a"])}])
    assert found["inputs"]["x"]["samples"] == [{"low": 1, "high": 3, "mean": 2, "std": 1, "nonfinite": 1}]


def test_parts_of_the_first_versions_are_judged_too() -> None:
    output = {"name": "y", "sqnr_db": 28.0, "parts_db": {"y[:, 4:]": 2.5}}
    report = {"backend": "qnn", "checks": {"outputs": [output]}, "files": [], "config": {}}
    found = verdict_json(report)
    assert [row["light"] for row in found["results"]] == [Light.GOOD, Light.BAD]
    assert found["light"] == Light.BAD
    assert found["lines"][0]["line"] == "onnxq diagnose MODEL -b qnn -d DATA"
    assert found["again"] == "onnxq quantize MODEL -b qnn -d DATA -o FOLDER"


def test_commands_of_a_page_keep_the_settings_of_its_run() -> None:
    output = {"name": "y", "sqnr_db": 2.5}
    files = ["my out/model.onnx", "my out/config.json"]
    report = {"backend": "qnn", "model": "m.onnx", "config": {"given": {"data": "x.npz"}}, "files": files}
    found = verdict_json({**report, "checks": {"outputs": [output]}})
    assert found["lines"][0]["line"] == "onnxq diagnose 'my out' --float m.onnx -d x.npz"
    assert found["again"] == "onnxq quantize m.onnx -c 'my out/config.json' -d x.npz -o FOLDER"
    assert bench_command(report, "m.onnx", "x.npz") == "onnxq bench m.onnx 'my out' -d x.npz"
    assert report_command(report, "x.npz") == "onnxq report 'my out' -d x.npz"


@pytest.mark.parametrize(
    ("row", "light"),
    [
        ({"sqnr_db": "inf"}, Light.GOOD),
        ({"sqnr_db": 19.9}, Light.LOOK),
        ({"sqnr_db": 30.0, "chip_db": 9.0}, Light.BAD),
        ({"sqnr_db": 40.0, "silent": True}, Light.BAD),
        ({"sqnr_db": 30.0, "decisions": {"kind": "arg_max", "agreement": 0.875, "compared": 8}}, Light.GOOD),
        ({"sqnr_db": 30.0, "decisions": {"kind": "arg_max", "agreement": 0.75, "compared": 8}}, Light.BAD),
        ({"agreement": 0.95}, Light.LOOK),
        ({}, Light.NONE),
    ],
)
def test_lights(row: dict, light: Light) -> None:
    assert light_of(row) == light
    assert light_of(row, trained=True) == (Light.BAD if "silent" in row else Light.NONE)


def hidden_shape() -> onnx.ModelProto:
    """A convolution behind a Reshape by the sizes that the input turns out to have: no inference tells them."""
    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.normal(size=(8, 4, 3, 3)).astype(np.float32), "w")
    sizes = numpy_helper.from_array(np.array([1, 4, 8, 8], np.int64), "sizes")
    nodes = [
        helper.make_node("Relu", ["x"], ["relu"], name="relu"),
        helper.make_node("NonZero", ["relu"], ["where"], name="where"),
        helper.make_node("ReduceMax", ["where"], ["last"], name="last", keepdims=1, axes=[1]),
        helper.make_node("Squeeze", ["last", "one"], ["flat"], name="flat"),
        helper.make_node("Max", ["flat", "sizes"], ["shape"], name="shape"),
        helper.make_node("Reshape", ["relu", "shape"], ["image"], name="reshape"),
        helper.make_node("Conv", ["image", "w"], ["y"], name="conv", pads=[1, 1, 1, 1]),
    ]
    one = numpy_helper.from_array(np.array([1], np.int64), "one")
    ends = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 4, "h", "w0"])]
    outs = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "hidden", ends, outs, [weight, sizes, one])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_work_that_no_shape_tells_is_counted_in_one_run_at_every_effort(tmp_path: Path) -> None:
    samples = [{"x": np.random.default_rng(n).normal(size=(1, 4, 8, 8)).astype(np.float32)} for n in range(4)]
    done = onnxq.quantize(hidden_shape(), backend="tensorrt", data=samples, out=tmp_path, config={"effort": 0})
    macs = 8 * 8 * 8 * 4 * 3 * 3
    work = done.report["work"]
    assert (work["macs"], work["quantized_macs"], work["layer_macs"]) == (macs, macs, {"conv": macs})
    assert "1 of 1 convolution: 100.0 % of the work" in done.summary()
    page = read_page(tmp_path / "report.html")
    assert page["measured"]["macs"] == {"conv": macs}
    assert "layer_macs" not in page["report"]["work"]
