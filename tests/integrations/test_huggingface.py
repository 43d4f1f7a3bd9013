"""Folders of Hugging Face: everything kept, models under the names that others look for, all or nothing."""

import json
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

from onnxq.cli.app import app
from onnxq.errors import ConfigError, DataError, OnnxqWarning
from onnxq.integrations.huggingface import quantize_folder
from onnxq.integrations.huggingface.image_steps import image_steps
from onnxq.runtime.preprocessing import Preprocessing, read_preprocessing

WIDTH = 32


def encoder(path):
    """A table of embeddings, two layers: what a small model of texts consists of."""
    random = np.random.default_rng(0)
    weights = {"table": (50, WIDTH), "w0": (WIDTH, 64), "w1": (64, WIDTH)}
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["words"], "/embeddings"),
        helper.make_node("MatMul", ["words", "w0"], ["a"], "/dense"),
        helper.make_node("Relu", ["a"], ["r"], "/act"),
        helper.make_node("MatMul", ["r", "w1"], ["last_hidden_state"], "/output"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "sequence"])],
        [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "sequence", WIDTH])],
        [numpy_helper.from_array(random.normal(0, 1, s).astype(np.float32), n) for n, s in weights.items()],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "model"
    encoder(made / "onnx/model.onnx")
    for name in ("config.json", "tokenizer_config.json"):
        (made / name).write_text("{}")
    (made / "onnx/model_fp16.onnx").write_bytes(b"made by somebody else")
    return made


@pytest.fixture
def feeds(tmp_path):
    random = np.random.default_rng(1)
    np.savez(tmp_path / "feeds.npz", input_ids=random.integers(0, 50, (16, 7)))
    return tmp_path / "feeds.npz"


def files(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_whole_folder_is_kept_and_each_dtype_has_its_name(tmp_path, folder, feeds):
    out = tmp_path / "out"
    with pytest.warns(OnnxqWarning, match=r"model_q4\.onnx: output 'last_hidden_state' has only"):
        made = quantize_folder(folder, out, dtypes=["q8", "uint8", "q4"], data=str(feeds), config={"effort": 0})
    own = {name for name in files(out) if not name.startswith("onnxq/")}
    assert own == files(folder) | {f"onnx/model{suffix}.onnx" for suffix in ("_quantized", "_uint8", "_q4")}
    assert all((out / name).read_bytes() == (folder / name).read_bytes() for name in files(folder))
    assert [one.model for one in made] == [out / f"onnx/model{s}.onnx" for s in ("_quantized", "_uint8", "_q4")]
    assert {"report.json", "report.html", "plan.json"} <= {path.name for path in (out / "onnxq/q8").iterdir()}
    assert made[0].report["sqnr_db"]["last_hidden_state"] > 25
    shapes = {entry.data_type: set() for entry in onnx.load(made[1].model).graph.initializer}
    for entry in onnx.load(made[1].model).graph.initializer:
        if len(entry.dims) == 2:
            shapes[entry.data_type].add(tuple(entry.dims))
    assert shapes[TensorProto.UINT8] == {(WIDTH, 64), (64, WIDTH)}
    assert shapes[TensorProto.INT8] == {(50, WIDTH)}  # only looked up, and no kernel multiplies it
    assert "MatMulNBits" in {node.op_type for node in onnx.load(made[2].model).graph.node}


def test_signed_weights_and_nf4_have_the_names_of_transformers_js(tmp_path, folder, feeds):
    found = quantize_folder(folder, tmp_path / "out", dtypes=["int8", "bnb4"], data=str(feeds), config={"effort": 0})
    int8, bnb4 = (onnx.load(one.model) for one in found)
    assert [one.model.name for one in found] == ["model_int8.onnx", "model_bnb4.onnx"]
    stored = {entry.name: entry.data_type for entry in int8.graph.initializer if len(entry.dims) == 2}
    assert set(stored.values()) == {TensorProto.INT8}
    (product,) = (node for node in bnb4.graph.node if node.op_type == "MatMulBnb4")
    assert product.name == "/output"  # the other sums over less than a block
    attributes = {entry.name: entry.i for entry in product.attribute}
    assert (attributes["quant_type"], attributes["block_size"]) == (1, 64)  # NF4
    without = quantize_folder(folder, tmp_path / "weights", dtypes=["bnb4"])
    assert without[0].model.name == "model_bnb4.onnx"


def test_weights_alone_need_no_data(tmp_path, folder):
    with pytest.raises(ConfigError, match="dtype uint8 quantizes what flows between layers too"):
        quantize_folder(folder, tmp_path / "out", dtypes=["q8", "uint8"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]
    quantize_folder(folder, tmp_path / "out", dtypes=["q8", "q4"], keep_float=False)
    names = files(tmp_path / "out")
    assert "onnx/model.onnx" not in names
    assert {"onnx/model_quantized.onnx", "onnx/model_q4.onnx", "onnx/model_fp16.onnx", "config.json"} <= names


def test_optimums_own_layout_has_the_model_beside_its_configuration(tmp_path):
    encoder(tmp_path / "flat/model.onnx")
    encoder(tmp_path / "flat/decoder_model.onnx")
    (tmp_path / "flat/config.json").write_text("{}")
    made = quantize_folder(tmp_path / "flat", tmp_path / "both", dtypes=["q4"])
    assert [one.model.name for one in made] == ["decoder_model_q4.onnx", "model_q4.onnx"]
    assert (tmp_path / "both/onnxq/decoder_model-q4/report.json").is_file()
    (one,) = quantize_folder(tmp_path / "flat", tmp_path / "one", dtypes=["q4"], file="model.onnx")
    assert one.model == tmp_path / "one/model_q4.onnx"


def test_the_command_prints_sizes_and_accuracy(tmp_path, folder, feeds):
    arguments = ["huggingface", str(folder), "-o", str(tmp_path / "out"), "-d", str(feeds), "--effort", "0"]
    result = CliRunner().invoke(app, [*arguments, "--dtype", "q8, q4", "--json"])
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)["files"]
    assert [one["dtype"] for one in found] == ["q8", "q4"]
    assert all(one["bytes"][1] < one["bytes"][0] for one in found)
    assert all(one["sqnr_db"]["last_hidden_state"] > 10 for one in found)
    again = CliRunner().invoke(app, arguments)
    assert again.exit_code == 2
    assert "exists already: give a new folder" in again.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtypes": ["q9"]}, "there is no dtype 'q9'. Known: q8, uint8, int8, q4, q2, bnb4, w8a16, w4a16, w4a8"),
        ({"file": "gone.onnx"}, "has no file 'gone.onnx'"),
        ({"config": {"backend": "tensorrt"}}, "the dtype names the target"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_written(tmp_path, folder, change, message):
    with pytest.raises(ConfigError) as error:
        quantize_folder(folder, tmp_path / "out", **change)
    assert message in str(error.value)
    assert not (tmp_path / "out").exists()


def test_folders_that_cannot_be_meant_are_refused(tmp_path, folder):
    with pytest.raises(ConfigError, match="lies inside of"):
        quantize_folder(folder, folder / "out")
    (folder / "onnx/model.onnx").unlink()
    with pytest.raises(ConfigError, match=r"holds no float model .*, only model_fp16.onnx"):
        quantize_folder(folder, tmp_path / "out")
    with pytest.raises(ConfigError, match="is no folder"):
        quantize_folder(tmp_path / "gone", tmp_path / "out")


def test_texts_need_the_tokenizer_of_the_folder(tmp_path, folder, monkeypatch):
    texts = tmp_path / "texts.txt"
    texts.write_text("one\n")
    with pytest.raises(ConfigError, match=r"texts need .*tokenizer\.json, which is not there"):
        quantize_folder(folder, tmp_path / "out", data=texts)
    (folder / "tokenizer.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ConfigError, match="pip install tokenizers"):
        quantize_folder(folder, tmp_path / "out", data=texts)
    texts.write_text("\n")
    with pytest.raises(DataError, match="holds no text"):
        quantize_folder(folder, tmp_path / "out", data=texts)


def test_preprocessor_configurations_become_steps(tmp_path):
    def steps(**given):
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(given))
        return read_preprocessing(image_steps(tmp_path))

    clip = {"do_resize": True, "size": {"shortest_edge": 224}, "resample": 3, "do_center_crop": True}
    values = {"do_normalize": True, "image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.2, 0.3]}
    found = steps(**clip, **values, crop_size={"height": 224, "width": 224}, rescale_factor=1 / 255)
    assert found == Preprocessing(
        resize=224, interpolation="bicubic", crop=(224, 224), scale=1 / 255, mean=(0.4, 0.5, 0.6), std=(0.2, 0.2, 0.3)
    )
    assert steps(size=384, do_rescale=False) == Preprocessing(resize=384, scale=1)
    with pytest.raises(ConfigError, match="resample 7 is not among 0, 1, 2, 3"):
        steps(size=384, resample=7)
    with pytest.raises(ConfigError, match="is neither a shortest_edge nor height and width"):
        steps(size={"longest_edge": 3})
    assert image_steps(tmp_path / "elsewhere") is None
