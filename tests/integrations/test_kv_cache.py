"""The cache of GroupQueryAttention in 8 and 4 bits: what onnxruntime stores is what the scales say, and it decodes."""

import json

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from typer.testing import CliRunner

from onnxq.cli.app import app
from onnxq.errors import ConfigError
from onnxq.integrations.huggingface import quantize_folder
from onnxq.integrations.huggingface.genai_config import read_genai_config
from onnxq.integrations.huggingface.kv_cache import quantize_cache, scales_of
from tests.integrations.small_language_model import HEADS, LAYERS, WIDTH, WORDS, prompts, write_folder

HEAD = WIDTH // HEADS
QUICK = {"effort": 0, "minimum_sqnr_db": 1.0, "diagnose": False}


def rows(count=8, length=24):
    return list(np.random.default_rng(3).integers(3, WORDS, (count, 1, length)))


def feed(session, ids, past=None):
    kinds = {"tensor(float)": np.float32, "tensor(int8)": np.int8, "tensor(uint8)": np.uint8}
    before = 0 if past is None else next(iter(past.values())).shape[2]
    given = {"input_ids": ids, "attention_mask": np.ones((1, before + ids.shape[1]), np.int64)}
    for one in session.get_inputs()[2:]:
        empty = np.zeros((1, HEADS, 0, one.shape[3]), kinds[one.type])
        given[one.name] = empty if past is None else past[one.name]
    return given


@pytest.mark.parametrize(("kind", "least"), [("int8", 30), ("int4", 10)])
def test_onnxruntime_stores_the_codes_that_the_scales_of_each_channel_say(tmp_path, kind, least):
    folder = write_folder(tmp_path / "model")
    float_session = ort.InferenceSession(folder / "model.onnx")
    report = quantize_cache(folder / "model.onnx", rows(), kind, read_genai_config(folder))
    assert report.layers == LAYERS
    assert report.sqnr_db > least
    assert report.bytes_per_token == (2 * LAYERS * WIDTH * 4, 2 * LAYERS * WIDTH * (8 if kind == "int8" else 4) // 8)
    session = ort.InferenceSession(folder / "model.onnx")
    ids = rows(1)[0]
    names = ["present.0.key", "present.0.value"]
    exact, stored = (one.run(names, feed(one, ids)) for one in (float_session, session))
    scales = {one.name: onnx.numpy_helper.to_array(one) for one in onnx.load(folder / "model.onnx").graph.initializer}
    for what, values, codes in zip(("key", "value"), exact, stored, strict=True):
        scale = scales[f"past_key_values.0.{what}_scale"].reshape(HEADS, 1, HEAD)
        most = 127 if kind == "int8" else 7
        wanted = np.clip(np.round(values / scale), -most - 1, most)
        if kind == "int4":
            codes = np.stack([codes & 15, codes >> 4], axis=-1).reshape(values.shape).astype(int) - 8
        # the codes of the first layer follow from float activations; a value in the middle may fall to either side
        assert (np.abs(codes - wanted) > 1).sum() == 0
        assert (codes != wanted).mean() < 1e-3


def test_tokens_one_by_one_with_a_quantized_cache_follow_the_float_model(tmp_path):
    folder = write_folder(tmp_path / "model")
    exact = ort.InferenceSession(folder / "model.onnx")
    ids = rows(1)[0]
    wanted = exact.run(["logits"], feed(exact, ids))[0]
    quantize_cache(folder / "model.onnx", rows(), "int8", read_genai_config(folder))
    session = ort.InferenceSession(folder / "model.onnx")
    past, logits = None, []
    for at in range(ids.shape[1]):
        made = session.run(None, feed(session, ids[:, at : at + 1], past))
        past = dict(zip([one.name for one in session.get_inputs()[2:]], made[1:], strict=True))
        logits.append(made[0])
    noise = np.square(np.concatenate(logits, axis=1) - wanted).sum() / np.square(wanted).sum()
    assert 10 * np.log10(noise) < -25


def test_scales_of_eight_bits_cover_everything_and_those_of_four_have_the_smaller_error():
    values = np.random.default_rng(0).standard_t(4, (2, 500, 8)).astype(np.float32)
    np.testing.assert_allclose(scales_of(values, 8), np.abs(values).max(axis=1).reshape(-1) / 127, rtol=1e-6)
    whole = np.abs(values).max(axis=1).reshape(-1) / 7
    found = scales_of(values, 4)

    def error(scale):
        scale = scale.reshape(2, 1, 8)
        return np.square(np.clip(np.round(values / scale), -8, 7) * scale - values).sum(axis=1).reshape(-1)

    assert (error(found) <= error(whole)).all()
    assert (error(found) < error(whole)).any()


def test_the_command_quantizes_weights_and_cache(tmp_path):
    folder, ids = write_folder(tmp_path / "model"), prompts(tmp_path / "ids.npz")
    arguments = ["huggingface", str(folder), "-d", str(ids), "--effort", "0", "--dtype", "w8a16", "--json"]
    result = CliRunner().invoke(app, [*arguments, "--kv-cache", "int8", "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.stderr
    (found,) = json.loads(result.stdout)["files"]
    assert found["kv_cache"]["format"] == "int8"
    assert json.loads((tmp_path / "out/onnxq/w8a16/kv_cache.json").read_text()) == found["kv_cache"]
    assert ort.InferenceSession(tmp_path / "out/model.onnx").get_inputs()[2].type == "tensor(int8)"
    wrong = CliRunner().invoke(app, [*arguments, "--kv-cache", "int2", "-o", str(tmp_path / "no")])
    assert wrong.exit_code == 2
    assert "kv_cache is int8 or int4" in wrong.stderr


def test_a_cache_without_prompts_or_without_the_operator_is_refused(tmp_path):
    folder = write_folder(tmp_path / "model")
    with pytest.raises(ConfigError, match="is calibrated on prompts"):
        quantize_folder(folder, tmp_path / "out", kv_cache="int8", config=QUICK)
    model = onnx.load(folder / "model.onnx")
    for node in model.graph.node:
        if node.op_type == "GroupQueryAttention":
            node.op_type = "OtherAttention"
    onnx.save(model, tmp_path / "other.onnx")
    with pytest.raises(ConfigError, match="has no GroupQueryAttention with a past of its own"):
        quantize_cache(tmp_path / "other.onnx", rows(), "int8")
    quantize_cache(folder / "model.onnx", rows(), "int4", read_genai_config(folder))
    with pytest.raises(ConfigError, match="has no GroupQueryAttention with a past of its own"):
        quantize_cache(folder / "model.onnx", rows(), "int4", read_genai_config(folder))
    assert not (tmp_path / "out").exists()
