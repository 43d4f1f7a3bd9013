"""Folders of ONNX Runtime GenAI and of Optimum with a decoder: prompts, past keys and values, the model replaced."""

import json

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from typer.testing import CliRunner

from onnxq.cli.app import app
from onnxq.errors import ConfigError, DataError, ModelError, OnnxqWarning
from onnxq.graph import Graph
from onnxq.integrations.huggingface import quantize_folder
from onnxq.integrations.huggingface.decoder import Decoder
from onnxq.integrations.huggingface.genai_config import read_genai_config
from onnxq.integrations.huggingface.prompts import read_prompts
from tests.integrations.small_language_model import HEADS, LAYERS, WIDTH, WORDS, prompts, write_folder

QUICK = {"effort": 0, "minimum_sqnr_db": 1.0, "diagnose": False}


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "model")


def files(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def kinds(model):
    return [node.op_type for node in onnx.load(model, load_external_data=False).graph.node]


@pytest.mark.parametrize(("dtype", "bits", "level"), [("w4a16", 4, None), ("w8a16", 8, 4), ("w4a8", 4, 4)])
def test_the_decoder_is_replaced_and_everything_else_is_kept(tmp_path, folder, dtype, bits, level):
    (made,) = quantize_folder(
        folder,
        tmp_path / "out",
        dtypes=[dtype],
        data=prompts(tmp_path / "ids.npz"),
        config=QUICK,
        options={"block": "16"},
    )
    assert made.model == tmp_path / "out/model.onnx"
    kept = files(folder) - {"model.onnx"}
    assert {name for name in files(tmp_path / "out") if not name.startswith("onnxq/")} == kept | {"model.onnx"}
    assert all((tmp_path / "out" / name).read_bytes() == (folder / name).read_bytes() for name in kept)
    layers = [node for node in onnx.load(made.model).graph.node if node.op_type == "MatMulNBits"]
    assert len(layers) == 7 * LAYERS + 1
    for node in layers:
        attributes = {entry.name: entry.i for entry in node.attribute}
        assert (attributes["bits"], attributes["block_size"], attributes.get("accuracy_level")) == (bits, 16, level)
    assert kinds(made.model).count("GatherBlockQuantized") == 1  # one table for both ends
    assert made.report["sqnr_db"]["logits"] > (30 if bits == 8 else 8)
    assert made.to_json()["bytes"][1] < 0.6 * made.to_json()["bytes"][0]


def test_prompts_have_their_own_lengths_and_every_second_one_a_past_that_the_float_model_computed(tmp_path, folder):
    graph, config = Graph.load(folder / "model.onnx"), read_genai_config(folder)
    feeds = list(read_prompts(prompts(tmp_path / "ids.npz"), folder, Decoder.of(graph, config), graph))
    lengths = [(feed["past_key_values.0.key"].shape[2], feed["input_ids"].shape[1]) for feed in feeds]
    assert lengths == [(0, 9), (0, 4), (4, 5), (0, 9), (0, 10), (10, 10), (0, 20), (0, 10), (10, 10)]
    assert all(feed["attention_mask"].shape[1] == sum(length) for feed, length in zip(feeds, lengths, strict=True))
    session = ort.InferenceSession(folder / "model.onnx")
    first, second = feeds[4], feeds[5]
    whole = np.concatenate([first["input_ids"], second["input_ids"]], axis=1)
    nothing = {name: values for name, values in first.items() if name.startswith("past")}
    at_once = session.run(["logits"], {"input_ids": whole, "attention_mask": np.ones_like(whole), **nothing})[0]
    np.testing.assert_allclose(session.run(["logits"], second)[0], at_once[:, 10:], atol=1e-4)


def test_prompts_that_the_float_model_writes_are_likely_to_itself_and_the_same_for_a_seed(folder):
    less_sure(folder / "model.onnx")
    graph, config = Graph.load(folder / "model.onnx"), read_genai_config(folder)
    decoder = Decoder.of(graph, config)
    made = [read_prompts(f"sampled:20x24@{seed}", folder, decoder, graph).prompts for seed in (3, 3, 4)]
    assert [prompt.shape for prompt in made[0]] == [(1, 24)] * 20
    assert all(prompt[0, 0] == config_of(folder)["model"]["bos_token_id"] for prompt in made[0])
    same, other = (np.array_equal(np.stack(made[0]), np.stack(each)) for each in made[1:])
    assert same
    assert not other
    assert entropy(folder, made[0]) < entropy(folder, [np.random.default_rng(0).permuted(p, axis=1) for p in made[0]])


def less_sure(model):
    """Logits of random weights have one highest by far: nothing would be drawn."""
    changed = onnx.load(model)
    (gain,) = (tensor for tensor in changed.graph.initializer if tensor.name == "/model/norm.weight")
    gain.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(gain) * np.float32(0.2), gain.name))
    onnx.save(changed, model)


def config_of(folder):
    return json.loads((folder / "genai_config.json").read_text())


def decoder_of(folder):
    graph = Graph.load(folder / "model.onnx")
    return Decoder.of(graph, read_genai_config(folder)), graph


def log_probabilities(model, folder, ids):
    """What the model in a folder gives for the next token of a prompt, at each of its places."""
    decoder, _ = decoder_of(folder)
    (logits,) = ort.InferenceSession(model / "model.onnx").run(["logits"], decoder.feed(ids))
    values = logits[0].astype(np.float64)
    return values - np.log(np.exp(values).sum(-1, keepdims=True))


def entropy(folder, prompts):
    """Nats for each token that the model in a folder needs for prompts."""
    found = [(log_probabilities(folder, folder, ids), ids[0, 1:, None]) for ids in prompts]
    return -np.mean([np.take_along_axis(each[:-1], tokens, axis=1) for each, tokens in found])


def test_a_folder_is_quantized_and_evaluated_with_prompts_of_its_own(tmp_path, folder):
    (made,) = quantize_folder(
        folder, tmp_path / "out", dtypes=["w4a16"], data="sampled:4x16", config=QUICK, options={"block": "16"}
    )
    words = ["--metric", "cross_entropy", "--metric", "kl", "-d", "sampled:4x16@1", "--json"]
    found = CliRunner().invoke(app, ["evaluate", str(folder / "model.onnx"), str(made.model), *words])
    assert found.exit_code == 0, found.output
    (values,) = json.loads(found.output)["models"].values()
    ids = read_prompts("sampled:4x16@1", folder, *decoder_of(folder)).prompts
    both = [np.stack([log_probabilities(model, folder, each) for each in ids]) for model in (folder, made.model.parent)]
    assert values["kl"] == pytest.approx((np.exp(both[0]) * (both[0] - both[1])).sum(-1).mean(), rel=1e-3)
    chosen = [np.take_along_axis(found[:-1], each[0, 1:, None], 1) for found, each in zip(both[1], ids, strict=True)]
    assert values["cross_entropy"] == pytest.approx(-np.mean(chosen), rel=1e-3)


@pytest.mark.parametrize("data", ["sampled:0", "sampled:4x1"])
def test_prompts_that_are_none(tmp_path, folder, data):
    with pytest.raises(ConfigError, match="one prompt of two tokens is the least"):
        quantize_folder(folder, tmp_path / "out", data=data)


def test_a_model_that_is_no_decoder_writes_no_prompts(tmp_path, folder):
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, [2])],
        [onnx.helper.make_tensor_value_info("y", 1, [2])],
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    found = CliRunner().invoke(app, ["evaluate", str(tmp_path / "m.onnx"), "-d", "sampled"])
    assert found.exit_code == 2
    assert "no decoder" in " ".join(found.output.split())


def optimum_folder(folder):
    """The names of Optimum, with position_ids, and use_cache_branch of merged decoders."""
    write_folder(folder)
    (folder / "genai_config.json").rename(folder / "config.json")
    model = onnx.load(folder / "model.onnx")
    info = onnx.helper.make_tensor_value_info
    model.graph.input.extend(
        [
            info("position_ids", onnx.TensorProto.INT64, ["batch_size", "sequence_length"]),
            info("use_cache_branch", onnx.TensorProto.BOOL, [1]),
        ]
    )
    (folder / "model.onnx").unlink()
    onnx.save(model, folder / "decoder_model_merged.onnx")
    return folder


def test_a_decoder_of_optimum_is_known_by_the_names_of_its_inputs(tmp_path):
    source = optimum_folder(tmp_path / "optimum")
    graph = Graph.load(source / "decoder_model_merged.onnx")
    decoder = Decoder.of(graph)
    assert decoder.past["past_key_values.1.value"] == "present.1.value"
    assert decoder.empty["past_key_values.0.key"] == (1, HEADS, 0, WIDTH // HEADS)
    ids = np.array([[5, 6, 7]])
    past = {name: np.zeros((1, HEADS, 4, WIDTH // HEADS), np.float32) for name in decoder.past}
    assert not decoder.feed(ids)["use_cache_branch"]
    assert decoder.feed(ids, past)["use_cache_branch"]
    np.testing.assert_array_equal(decoder.feed(ids, past)["position_ids"], [[4, 5, 6]])
    (made,) = quantize_folder(
        source, tmp_path / "out", dtypes=["w4a16"], data=prompts(tmp_path / "ids.npz"), config=QUICK
    )
    assert made.model.name == "decoder_model_merged_w4a16.onnx"
    assert (tmp_path / "out/decoder_model_merged.onnx").is_file()


def test_keys_and_values_with_few_decibels_are_one_warning(tmp_path):
    source = write_folder(tmp_path / "model")
    with pytest.warns(OnnxqWarning) as caught:
        quantize_folder(source, tmp_path / "out", dtypes=["w4a16"], data=prompts(tmp_path / "ids.npz"), config=QUICK)
    said = [str(one.message) for one in caught if "present." in str(one.message)]
    assert len(said) == 1
    assert "the least of 2 keys and values below 20 dB" in said[0]


def test_external_data_of_the_float_model_is_left_behind(tmp_path):
    source = write_folder(tmp_path / "model", external=True)
    (source / "model.onnx.data").rename(source / "weights.bin")
    model = onnx.load(source / "model.onnx", load_external_data=False)
    for tensor in model.graph.initializer:
        tensor.external_data[0].value = "weights.bin"
    onnx.save(model, source / "model.onnx")
    quantize_folder(source, tmp_path / "out", config={"effort": 0})
    assert not (tmp_path / "out/weights.bin").exists()
    ort.InferenceSession(tmp_path / "out/model.onnx")
    (source / "weights.bin").unlink()
    with pytest.raises(ModelError, match=r"keeps weights in 'weights.bin', which is not beside it"):
        quantize_folder(source, tmp_path / "again", config=QUICK)
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtypes": ["w4a16", "q8"]}, "names one file for the decoder: give one dtype"),
        ({"dtypes": ["w3a16"]}, "there is no dtype 'w3a16'"),
        ({"file": "other.onnx"}, "says that the decoder is 'model.onnx'"),
        ({"options": {"block": "17"}}, "option 'block' of backend 'weight_only' cannot be '17'"),
        ({"options": {"blocks": "16"}}, "has no option 'blocks'"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_written(tmp_path, folder, change, message):
    with pytest.raises(ConfigError) as error:
        quantize_folder(folder, tmp_path / "out", **change)
    assert message in str(error.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("model", "decoder", "filename"), "gone.onnx", "has no such file"),
        (("model", "decoder", "filename"), 3, "names no file"),
        (("model", "decoder"), [], "model.decoder is no table"),
        (("model", "decoder", "num_hidden_layers"), "six", "is a whole number above 0"),
        (("model", "decoder", "inputs", "past_key_names"), "past", "a name with one %d"),
    ],
)
def test_a_configuration_that_is_wrong_is_named_with_its_key(tmp_path, folder, keys, value, message):
    content = json.loads((folder / "genai_config.json").read_text())
    place = content
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    (folder / "genai_config.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=message):
        quantize_folder(folder, tmp_path / "out")


def test_prompts_that_are_none_are_refused(tmp_path, folder):
    np.savez(tmp_path / "floats.npz", a=np.ones((2, 3), np.float32))
    with pytest.raises(DataError, match="prompts are whole numbers of tokens"):
        quantize_folder(folder, tmp_path / "out", data=tmp_path / "floats.npz")
    (tmp_path / "prompts.txt").write_text("Once upon a time\n")
    with pytest.raises(ConfigError, match=r"texts need .*tokenizer\.json, which is not there"):
        quantize_folder(folder, tmp_path / "out", data=tmp_path / "prompts.txt")
    np.savez(tmp_path / "far.npz", a=np.full((1, 3), WORDS + 100))
    with pytest.raises(DataError):
        quantize_folder(folder, tmp_path / "out", data=tmp_path / "far.npz", config=QUICK)
    assert not (tmp_path / "out").exists()


def test_the_command_takes_options_of_the_target(tmp_path, folder):
    arguments = ["huggingface", str(folder), "-o", str(tmp_path / "out"), "--effort", "0", "--json"]
    result = CliRunner().invoke(app, [*arguments, "--option", "block=64", "--option", "symmetric=yes"])
    assert result.exit_code == 0, result.stderr
    (found,) = json.loads(result.stdout)["files"]
    assert found["dtype"] == "w4a16"
    assert found["backend"] == "weight_only:bits=4,block=64,symmetric=yes,form=nbits"
    wrong = CliRunner().invoke(app, [*arguments[:-1], "--option", "block"])
    assert wrong.exit_code == 2
    assert "write KEY=VALUE" in wrong.stderr
