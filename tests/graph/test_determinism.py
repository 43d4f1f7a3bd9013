"""The same model gives the same bytes: twice, from a copy, and in another process with another hash seed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from onnxq.graph import Graph
from tests.graph.models import body, model, node, sample, value

SCRIPT = """
import hashlib, sys
import numpy as np
from onnxq.graph import Graph
graph = Graph.load(sys.argv[1])
graph.infer_shapes()
for tensor in ("r", "x", "y"):
    graph.insert_after(tensor, "Identity", domain="com.microsoft" if tensor == "r" else "")
graph.add_constant("new", np.arange(5000))
graph.remove_dead()
for path in graph.save(sys.argv[2], external=True):
    print(hashlib.sha256(path.read_bytes()).hexdigest())
"""


def source() -> onnx.ModelProto:
    then = body([node("Mul", "r w", "a"), node("Neg", "a", "o")], [value("o")], constants={"w": sample(2, 3)})
    other = body([node("Odd", "r", "m", domain="b.domain"), node("Strange", "m", "p", domain="a.domain")], [value("p")])
    nodes = [node("Relu", "x", "r"), node("If", "k", "y", then_branch=then, else_branch=other)]
    made = model(nodes, [value("x"), value("k", (), TensorProto.BOOL)], constants={"big": sample(3000)})
    for key in "zab":
        made.metadata_props.add(key=key, value=key)
    return made


def test_saving_twice_and_saving_a_copy_give_equal_bytes(tmp_path: Path) -> None:
    graph = Graph.from_model(source())
    names = []
    for index, written in enumerate((graph, graph, graph.copy())):
        (tmp_path / str(index)).mkdir()
        names.append(written.save(tmp_path / str(index) / "m.onnx", external=True))
    for one, other in zip(names[0] * 2, names[1] + names[2], strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_another_process_with_another_hash_seed_gives_equal_bytes(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(source().SerializeToString())
    results = set()
    for seed in ("0", "1", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", SCRIPT, str(path), str(tmp_path / "out.onnx")]
        results.add(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    assert len(results) == 1
    (hashes,) = results
    assert len(hashes.split()) == 2
    assert hashlib.sha256((tmp_path / "out.onnx").read_bytes()).hexdigest() == hashes.split()[0]
    assert Graph.load(tmp_path / "out.onnx").values("w").tolist() == np.asarray(sample(2, 3)).tolist()
