"""report.html in a real Chromium: every view, by mouse and keyboard, on a desk and on a phone, without a network."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from typer.testing import CliRunner

import onnxq
from onnxq.cli.app import app
from onnxq.demo import load_data, model_path
from onnxq.page.document import read_page, write_page
from onnxq.pipeline.show import ShownPage
from tests.diagnose.conftest import TIED
from tests.flow.test_detector_tails import detector, images
from tests.golden_graphs import GOLDEN
from tests.page.browser import browse, browse_frame, serious

pytestmark = pytest.mark.browser

EVERY = {"verdict", "layers", "tensors", "weights", "coverage", "sizes", "graph", "data", "files", "settings"}
HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "[red]bold[/red]",
    "\x1b[31mred\x1b]0;title\x07",
    "right\u202eleft\u2028line",
    "long" * 75,
)


def quantized(model: onnx.ModelProto, samples: object, out: Path, **config: object) -> Path:
    onnxq.quantize(model, backend="onnxruntime", data=samples, out=out, config={"report": "full", **config})
    return out / "report.html"


def cnn(out: Path) -> Path:
    golden = GOLDEN["residual"]()
    return quantized(golden.model, golden.samples, out, effort=1)


def transformer(out: Path) -> Path:
    golden = GOLDEN["transformer"]()
    return quantized(golden.model, golden.samples, out, effort=0)


def boxes_and_scores(out: Path) -> Path:
    return quantized(detector(), images(), out, effort=0, minimum_sqnr_db=-100.0, diagnose=True)


def command(*arguments: object) -> None:
    done = CliRunner().invoke(app, [str(one) for one in arguments])
    assert done.exit_code == 0, done.output


def trained(out: Path) -> Path:
    pytest.importorskip("torch")
    data = out.with_suffix(".npz")
    np.savez(data, image=load_data().calibration[:64])
    words = ("-b", "onnxruntime", "--set", "activation.observer=minmax", "--fake-quantizer", "lsq", "--train", data)
    command("qat", model_path(), *words, "--epochs", 2, "-o", out, "-q")
    return out / "report.html"


def searched(out: Path) -> Path:
    data = out.with_suffix(".npz")
    np.savez(data, image=load_data().calibration[:8])
    command("search", model_path(), "-b", "academic", "-d", data, "--bits", "8,4", "--budget", "70%", "-o", out, "-q")
    return out / "report.html"


def restored(out: Path) -> Path:
    data = out.with_suffix(".npz")
    np.savez(data, image=load_data().calibration[:8])
    words = ("-b", "academic", "-d", data, "--set", "activation.bits=4", "--fallback", "float", "--reach", 18)
    command("search", model_path(), *words, "-o", out, "-q")
    return out / "report.html"


RUNS: dict[str, tuple[Callable[[Path], Path], set[str]]] = {
    "cnn": (cnn, EVERY | {"methods"}),
    "detector": (boxes_and_scores, EVERY),
    "transformer": (transformer, EVERY),
    "qat": (trained, EVERY | {"training"}),
    "search": (searched, {"front", "files", "settings"}),
    "restored": (restored, {"held", "files", "settings"}),
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder, made = tmp_path_factory.mktemp("pages"), {}

    def page(name: str) -> Path:
        if name not in made:
            made[name] = RUNS[name][0](folder / name)
        return made[name]

    return page


def check(page: Path, views: set[str], **asked: object) -> None:
    found = browse(page, axe=True, **asked)
    assert found["errors"] == []
    assert found["requests"] == [page.as_uri()]  # the page itself
    assert found["dialogs"] == 0
    assert views <= set(found["views"])
    for name, view in found["views"].items():
        assert "could not be drawn" not in view["text"], name
        assert len(view["text"]) > 30, name
        assert not view["overflow"], f"{name} is wider than the window"
        assert view["inked"] or not view["canvases"], f"nothing is drawn in {name}"
    assert serious(found) == []


@pytest.mark.parametrize("name", RUNS)
def test_every_view_is_drawn(name: str, pages: Callable[[str], Path]) -> None:
    check(pages(name), RUNS[name][1])


def test_on_a_phone_in_the_dark(pages: Callable[[str], Path]) -> None:
    check(pages("detector"), EVERY, width=390, height=780, dark=True)


def test_pages_of_other_runs() -> None:
    """ONNXQ_PAGES names a folder whose folders are runs, such as those of real models."""
    folder = os.environ.get("ONNXQ_PAGES")
    if not folder:
        pytest.skip("ONNXQ_PAGES names no folder with runs")
    found = sorted(Path(folder).glob("*/report.html"))
    assert found
    for page in found:
        check(page, {"files", "settings"})


def test_the_keyboard_reaches_layers_and_their_details(pages: Callable[[str], Path]) -> None:
    steps = [
        {"go": "layers"},
        {"focus": "#main canvas"},
        {"press": "ArrowRight"},
        {"press": "Enter"},
        {"focused": True},
        {"read": "#panel"},
        {"press": "Escape"},
        {"focused": True},
        {"read": "#panel"},
    ]
    focused, panel, back, closed = browse(pages("cnn"), views=[], steps=steps)["read"]
    assert focused == "H2#"
    assert "operator" in panel
    assert "to leave it float" in panel
    assert back == "CANVAS#"
    assert closed in ("", None)


def test_the_cause_of_dead_scores_and_the_line_that_mends_them_take_no_click(tmp_path: Path) -> None:
    ill = TIED.ill(tmp_path)
    config = {**ill.config, "effort": 0, "diagnose": True, "minimum_sqnr_db": 0.0}
    onnxq.quantize(ill.model, backend="qnn", data=ill.data, config=config, out=tmp_path / "out")
    diagnosis = read_page(tmp_path / "out" / "report.html")["report"]["diagnosis"]
    text = browse(tmp_path / "out" / "report.html", views=["verdict"])["views"]["verdict"]["text"]
    assert diagnosis["causes"][0]["text"] in text
    assert diagnosis["combined"]["line"] in text
    assert "-c " in text
    assert "model_remedy.toml" in text


def test_dead_scores_of_a_join_and_the_command_that_mends_them_take_no_click(tmp_path: Path) -> None:
    """Of a run that nobody has diagnosed: ranges alone tell, and the command is run as it stands on the page."""
    onnx.save(detector(), tmp_path / "model.onnx")
    np.savez(tmp_path / "x.npz", image=np.concatenate([one["image"] for one in images()]))
    words = ("-b", "qnn", "-d", tmp_path / "x.npz", "--effort", 0, "--min-sqnr", -100, "--set", "diagnose=false", "-q")
    command("quantize", tmp_path / "model.onnx", *words, "--set", "node.join.force=true", "-o", tmp_path / "out")
    page = tmp_path / "out" / "report.html"
    text = browse(page, views=["verdict"])["views"]["verdict"]["text"]
    assert "scores (" in text.partition("Why, as far as ranges tell")[2]
    line = next(line for line in text.splitlines() if line.startswith("onnxq quantize "))
    command(*shlex.split(line.replace("FOLDER", str(tmp_path / "mended")))[1:], "-q")
    before, after = (read_page(one)["verdict"] for one in (page, tmp_path / "mended" / "report.html"))
    assert [row["light"] for row in before["results"]] == ["good", "good", "bad"]
    assert after["light"] == "good"


def test_dead_scores_are_told_by_parameters_alone_where_a_run_has_kept_no_ranges(tmp_path: Path) -> None:
    """As those of early versions, drawn by 'onnxq report'."""
    config = {"minimum_sqnr_db": -100.0, "diagnose": False, "node": {"join": {"force": True}}, "effort": 0}
    onnxq.quantize(detector(), backend="qnn", data=images(), config=config, out=tmp_path)
    data = read_page(tmp_path / "report.html")
    data["measured"]["observed"] = {}
    write_page(tmp_path / "early.html", data, "early")
    text = browse(tmp_path / "early.html", views=["verdict"])["views"]["verdict"]["text"]
    assert "scores (" in text.partition("Why, as far as ranges tell")[2]
    assert "force=false" in text


def test_scales_of_a_training_are_drawn_for_each_tensor(pages: Callable[[str], Path]) -> None:
    page = pages("qat")
    scales = read_page(page)["scales"]
    name = list(scales["tensors"])[1]
    row = "#main tbody tr:nth-child(2) button"
    steps = [{"go": "training"}, {"read": "#main"}, {"inked": "#main canvas"}, {"click": row}, {"read": "#said"}]
    steps += [{"inked": "#main canvas"}, {"focus": row}, {"press": "Enter"}, {"focused": True}]
    found = browse(page, views=["training"], axe=True, steps=steps)
    assert (found["errors"], serious(found)) == ([], [])
    text, said, focused = found["read"]
    assert f"{scales['count']} quantizers with scales of their own" in text
    assert said == f"The scale of {name} is drawn"
    assert focused.startswith("BUTTON")
    assert found["views"]["training"]["canvases"] == 4  # loss, metric, learning rate, scales


def test_a_low_result_names_the_noisiest_layers_where_nobody_has_looked_for_the_cause(tmp_path: Path) -> None:
    golden = GOLDEN["residual"]()
    config = {"report": "full", "effort": 0, "activation": {"bits": 4}, "minimum_sqnr_db": -99.0, "diagnose": False}
    onnxq.quantize(golden.model, backend="academic", data=golden.samples, config=config, out=tmp_path)
    page = tmp_path / "report.html"
    text = browse(page, views=["verdict"])["views"]["verdict"]["text"]
    assert "onnxq diagnose" in text
    rows = text.partition("Layers whose own quantizers make most noise")[2].splitlines()
    noise = [float(row.split("\t")[3].removesuffix(" dB")) for row in rows if row.count("\t") == 5 and " dB" in row]
    assert len(noise) >= 2
    assert noise == sorted(noise)


def test_a_timed_file_has_its_speed_on_the_page_and_the_line_for_that_of_layers(
    pages: Callable[[str], Path], tmp_path: Path
) -> None:
    data = read_page(pages("cnn"))
    data["report"]["speed"] = {
        "float_ms": 5.98,
        "file_ms": 3.39,
        "times_as_fast": 1.759,
        "quartiles": [1.75, 1.779],
        "rounds": 9,
    }
    write_page(tmp_path / "timed.html", data, "timed")
    found = browse(tmp_path / "timed.html", views=["sizes"])
    text = found["views"]["sizes"]["text"]
    assert found["errors"] == []
    assert "1.76 (1.75 .. 1.78 in half of 9 rounds)" in text.partition("Time in onnxruntime here")[2]
    assert f"onnxq bench MODEL {pages('cnn').parent} -d DATA" in text


def hostile_model() -> onnx.ModelProto:
    """Layers whose nodes and tensors have names that a page, a terminal or a reader could obey."""
    rng = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for number, name in enumerate(HOSTILE):
        weights.append(numpy_helper.from_array(rng.normal(size=(4, 4, 1, 1)).astype(np.float32), f"{name}.w"))
        nodes.append(helper.make_node("Conv", [last, f"{name}.w"], [f"{name}.y"], name=name))
        last = f"{name}.y"
        if number % 2:
            nodes.append(helper.make_node("Sin", [last], [f"{name}.s"], name=f"{name}.sin"))
            last = f"{name}.s"
    image = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 4, 8, 8])
    result = helper.make_tensor_value_info(last, onnx.TensorProto.FLOAT, [1, 4, 8, 8])
    graph = helper.make_graph(nodes, "hostile", [image], [result], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_hostile_names_are_text(tmp_path: Path) -> None:
    samples = [{"x": np.random.default_rng(n).normal(size=(1, 4, 8, 8)).astype(np.float32)} for n in range(4)]
    page = quantized(hostile_model(), samples, tmp_path, effort=0, minimum_sqnr_db=-100.0)
    steps = [{"go": "layers"}, {"click": "#main tbody tr:nth-child(1) button"}, {"read": "#panel"}]
    found = browse(page, axe=True, steps=steps)
    assert (found["errors"], found["dialogs"]) == ([], 0)
    assert found["requests"] == [page.as_uri()]
    assert serious(found) == []
    layers = found["views"]["layers"]["text"]
    for shown in (*HOSTILE[:3], "\\x1b[31mred\\x1b]0;title\\x07", "right\\u202eleft\\u2028line", HOSTILE[5]):
        assert shown in layers
    assert all(view["scripts"] == 2 and not view["overflow"] for view in found["views"].values())
    assert HOSTILE[0] in found["read"][0]


@pytest.mark.parametrize("window", [{}, {"width": 390, "height": 780, "dark": True}], ids=["desk", "phone"])
def test_pages_of_tables(window: dict[str, object], tmp_path: Path) -> None:
    """Those of diff, sensitivity and bench: without a program, but with names that could be taken for one."""
    model, data = tmp_path / "model.onnx", tmp_path / "x.npz"
    onnx.save(hostile_model(), model)
    np.savez(data, x=np.random.default_rng(0).normal(size=(4, 4, 8, 8)).astype(np.float32))
    pages = {name: tmp_path / f"{name}.html" for name in ("diff", "sensitivity", "bench")}
    for bits in ("8", "6"):
        words = ("-b", "academic", "-d", data, "--effort", 0, "--min-sqnr", -100, "--report", "no")
        command("quantize", model, *words, "--set", f"activation.bits={bits}", "-o", tmp_path / bits, "-q")
    command("diff", tmp_path / "8", tmp_path / "6", "--html", pages["diff"])
    command("sensitivity", model, "-b", "academic", "-d", data, "--html", pages["sensitivity"], "-q")
    command("bench", model, tmp_path / "8", "-d", data, "--rounds", 2, "--warm-up", 1, "--html", pages["bench"], "-q")
    for name, page in pages.items():
        found = browse(page, plain=True, axe=True, **window)
        assert (found["errors"], found["dialogs"], found["requests"]) == ([], 0, [page.as_uri()])
        assert serious(found) == []
        view = found["views"]["page"]
        assert view["rows"] > 5, name
        assert not view["overflow"], f"the page of {name} is wider than the window"
        assert view["scripts"] == 0
        for shown in HOSTILE[:3]:
            assert shown in view["text"], name


def test_a_notebook_shows_the_page_in_a_frame(tmp_path: Path) -> None:
    """Its links lead to its own views, and not to those of the document around it."""
    around = tmp_path / "notebook.html"
    shown = ShownPage(transformer(tmp_path / "out"))
    around.write_text(f"<!doctype html><title>notebook</title>{shown._repr_html_()}", encoding="utf-8")
    found = browse_frame(around)
    assert found["errors"] == []
    assert found["requests"] == [around.as_uri()]
    assert found["top"] == around.as_uri()
    assert set(found["views"]) >= EVERY
    assert all(length > 0 for length in found["views"].values())


def chain(length: int) -> onnx.ModelProto:
    """Small layers one behind the other, with a sum around every third."""
    rng = np.random.default_rng(0)
    nodes, weights, last, earlier = [], [], "x", "x"
    for number in range(length // 2):
        name = f"stage{number // 100}.block{number}"
        turn = rng.uniform(0, 2 * np.pi)
        rotation = 1.1 * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]], np.float32)
        weights.append(numpy_helper.from_array(rotation.astype(np.float32), f"{name}.weight"))
        nodes.append(helper.make_node("MatMul", [last, f"{name}.weight"], [f"{name}.y"], name=f"{name}.matmul"))
        last = f"{name}.y"
        if number % 3 == 2:
            nodes.append(helper.make_node("Add", [last, earlier], [f"{name}.sum"], name=f"{name}.add"))
            last = earlier = f"{name}.sum"
        else:
            nodes.append(helper.make_node("Tanh", [last], [f"{name}.t"], name=f"{name}.tanh"))
            last = f"{name}.t"
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 2]) for name in ("x", last)]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.slow
def test_ten_thousand_nodes_stay_fluid(tmp_path: Path) -> None:
    samples = [{"x": np.random.default_rng(n).normal(size=(1, 2)).astype(np.float32)} for n in range(4)]
    page = quantized(chain(10_000), samples, tmp_path, effort=0, minimum_sqnr_db=-1000.0, diagnose=False)
    steps = [{"go": "layers"}, {"scroll": ["#main .scroll", 160_000]}, {"go": "graph"}, {"wheel": 20}]
    found = browse(page, steps=steps)
    print(page.stat().st_size, found["seconds"])
    assert found["errors"] == []
    assert page.stat().st_size < 5_000_000
    assert all(view["elements"] < 4000 for view in found["views"].values())
    assert found["seconds"]["open"] < 10
    assert all(found["seconds"][view] < 5 for view in EVERY)
    assert found["seconds"]["scroll"] < 1
    assert found["seconds"]["wheel"] < 0.5
