"""`onnxq qat`: trains, writes checked files with the course of the training, goes on after a stop, names mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnxq.demo import load_data, model_path
from onnxq.runtime.session import make_session

torch = pytest.importorskip("torch")

Run = Callable[..., Any]

QUICK = ("--steps", 6, "--batch-size", 16, "--quiet")
LEARNT = ("--fake-quantizer", "lsq", "--weight-fake-quantizer", "lsq")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """The network is so small that threads cost more than they save."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("training") / "train.npz"
    data = load_data()
    np.savez(path, image=data.train_images[:160], labels=data.train_labels[:160])
    return path


def written(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_files_and_report_of_a_training(run: Run, training: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run("qat", model_path(), "-b", "academic", "--bits", "w3a4", *LEARNT, "--train", training, "-o", out,
                 "--steps", 24, "--batch-size", 16, "--holdout", 0.2)  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert written(out) == [
        *("config.json", "model.onnx", "plan.json", "qparams.json", "report.html", "report.json"),
        *("scales.csv", "training.csv", "training.svg"),
    ]
    report = json.loads((out / "report.json").read_text())
    training_report = report["training"]
    assert training_report["steps"] == 24
    assert training_report["metric"] == "accuracy"
    assert training_report["after"] >= training_report["before"]
    # The file and the net may round a value on the border of two steps differently: one image of the 32.
    assert training_report["written"] == pytest.approx(training_report["after"], abs=1.01 / 32)
    assert {str(out / "training.csv"), str(out / "training.svg")} <= set(report["files"])
    assert report["work"]["quantized_macs"] == report["work"]["macs"] > 1_000_000
    assert "32 of the 160 samples are kept apart" in " ".join(report["notes"])
    assert "epoch 3 of 3: step 24, loss" in result.stderr
    for text in ("accuracy", "float", "before training", "of the written file"):
        assert text in result.stdout
    plan = json.loads((out / "plan.json").read_text())
    assert plan["tensors"]["residual1.conv.weight"]["spec"]["dtype"] == "int3"
    trained = onnx.load(out / "model.onnx")
    assert [value.name for value in trained.graph.output] == ["logits"]


def test_without_labels_the_float_model_is_the_teacher(run: Run, tmp_path: Path) -> None:
    np.savez(tmp_path / "images.npz", image=load_data().train_images[:96])
    out = tmp_path / "out"
    result = run(
        "qat", model_path(), "-b", "onnxruntime", "--train", tmp_path / "images.npz", "-o", out, *QUICK, "--json"
    )
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["training"]["metric"] == "sqnr_db"
    assert report["training"]["float"] == "inf"


def test_a_function_gives_data_and_metric_and_loss(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own_training.py").write_text(
        "import torch\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "from onnxq.demo import load_data\n"
        "def loader():\n"
        "    data = load_data()\n"
        "    images, labels = torch.from_numpy(data.train_images[:64]), torch.from_numpy(data.train_labels[:64])\n"
        "    return DataLoader(TensorDataset(images, labels), batch_size=16, shuffle=True)\n"
        "def loss(outputs, labels):\n"
        "    return torch.nn.functional.cross_entropy(outputs['logits'], labels, label_smoothing=0.1)\n"
        "def wrong(outputs, labels):\n"
        "    return float((outputs['logits'].argmax(1) != labels).mean())\n"
    )
    result = run("qat", model_path(), "-b", "onnxruntime", "--train", "own_training.py:loader", "-o", "out",
                 "--label-loss", "own_training.py:loss", "--metric", "own_training.py:wrong", "--best-by", "min",
                 *QUICK, "--json")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)["training"]
    assert report["metric"] == "wrong"
    assert report["after"] <= report["before"]


def test_the_same_command_gives_the_same_files(run: Run, training: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        result = run("qat", model_path(), "-b", "tensorrt", *LEARNT, "--train", training, "-o", tmp_path / name, *QUICK)
        assert result.exit_code == 0, result.stderr
    for name in ("model.onnx", "qparams.json", "training.csv"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes(), name


def test_checkpoints_stay_where_they_were_asked_for_and_go_on(run: Run, training: Path, tmp_path: Path) -> None:
    command = ("qat", model_path(), "-b", "tensorrt", *LEARNT, "--train", training, *QUICK)
    named = ("--checkpoint", tmp_path / "kept")
    first = run(*command, "-o", tmp_path / "first", *named)
    assert first.exit_code == 0, first.stderr
    assert "step-00000006.pt" in written(tmp_path / "kept")
    again = run(*command, "-o", tmp_path / "again", *named)
    assert again.exit_code == 2
    assert "--resume" in again.stderr
    resumed = run(*command, "-o", tmp_path / "resumed", *named, "--resume")
    assert resumed.exit_code == 0, resumed.stderr
    assert (tmp_path / "resumed" / "model.onnx").read_bytes() == (tmp_path / "first" / "model.onnx").read_bytes()
    other = run(*command, "-o", tmp_path / "other", *named, "--resume", "--lr", 0.5)
    assert other.exit_code == 2
    assert "lr was 0.001 and is 0.5" in other.stderr


def fixed_model(path: Path, *, built_in: bool) -> None:
    """The demo for one image at a time; with `built_in` a Reshape inside allows nothing else."""
    model = onnx.load(model_path())
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 1
    del model.graph.value_info[:]
    if built_in:
        (flatten,) = (node for node in model.graph.node if node.op_type == "Flatten")
        shape = onnx.numpy_helper.from_array(np.array([1, 64]), "one_row")
        model.graph.initializer.append(shape)
        flatten.op_type = "Reshape"
        flatten.input.append("one_row")
        del flatten.attribute[:]
    onnx.save(model, path)


@pytest.mark.parametrize("built_in", [False, True])
def test_a_model_for_a_fixed_batch_is_trained_all_the_same(
    built_in: bool, run: Run, training: Path, tmp_path: Path
) -> None:
    fixed_model(tmp_path / "fixed.onnx", built_in=built_in)
    out = tmp_path / "out"
    result = run("qat", tmp_path / "fixed.onnx", "-b", "onnxruntime", "--train", training, "-o", out, "--steps", 2,
                 "--batch-size", 4, "--json", "--quiet")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    slow = any("exported for batches of 1" in note for note in json.loads(result.stdout)["notes"])
    assert slow == built_in
    session = make_session(out / "model.onnx")
    (logits,) = session.run(None, {"image": load_data().test_images[:1]})
    assert logits.shape == (1, 10)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--train", "missing.npz"), "does not exist"),
        (("--train", "nothing"), "no module:function"),
        (("--train", "TRAINING", "--lr", "-1"), "lr is a finite number above 0"),
        (("--train", "TRAINING", "--schedule", "linear"), "Known: cosine, step, constant"),
        (("--train", "TRAINING", "--bits", "4"), "--bits is the bits of weights and activations such as w4a8"),
        (("--train", "TRAINING", "--fake-quantizer", "lsqq"), "Did you mean 'lsq'"),
        (("--train", "TRAINING", "--metric", "acuracy"), "Did you mean 'accuracy'"),
        (("--train", "TRAINING", "--observer-freeze", "soon"), "epochs from 1 on, or never"),
        (("--train", "TRAINING", "--labels", "label"), "Did you mean 'labels'"),
        (("--train", "TRAINING", "--label-loss", "nowhere:loss"), "cannot import 'nowhere'"),
        (("--train", "TRAINING", "--batch-norms", "melted"), "folded, frozen, live"),
        (("--train", "TRAINING", "--holdout", "1.5"), "holdout is the fraction"),
        (("--train", "TRAINING", "--label-output", "logit"), "Did you mean 'logits'"),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(
    arguments: tuple[str, ...], said: str, run: Run, training: Path, tmp_path: Path
) -> None:
    given = [str(training) if part == "TRAINING" else part for part in arguments]
    result = run("qat", model_path(), "-b", "academic", *given, "-o", tmp_path / "out", *QUICK)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_training_that_explodes_is_a_failure_with_advice(run: Run, training: Path, tmp_path: Path) -> None:
    result = run("qat", model_path(), "-b", "academic", "--train", training, "-o", tmp_path / "out", *QUICK,
                 *LEARNT, "--optimizer", "sgd", "--lr", "1e30")  # fmt: skip
    assert result.exit_code == 1
    assert "lower the learning rate" in result.stderr
    assert not (tmp_path / "out" / "model.onnx").exists()


def test_a_training_that_helps_nothing_writes_what_was_before_it(run: Run, training: Path, tmp_path: Path) -> None:
    command = ("qat", model_path(), "-b", "academic", "--train", training, *QUICK, "--optimizer", "sgd", "--lr", "1e9")
    result = run(*command, "-o", tmp_path / "best", "--json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["training"]["best_step"] == 0
    assert report["training"]["written"] > 0.9
    assert "training made nothing better" in " ".join(report["warnings"])
    last = json.loads(run(*command, "-o", tmp_path / "last", "--json", "--last").stdout)
    assert last["training"]["written"] < 0.9


@pytest.mark.slow
def test_training_recovers_what_few_bits_cost(run: Run, tmp_path: Path) -> None:
    data = load_data()
    np.savez(tmp_path / "train.npz", image=data.train_images, labels=data.train_labels)
    np.savez(tmp_path / "test.npz", image=data.test_images, labels=data.test_labels)
    result = run("qat", model_path(), "-b", "academic", "--bits", "w2a3", *LEARNT, "--train", tmp_path / "train.npz",
                 "--eval", tmp_path / "test.npz", "--epochs", 4, "-o", tmp_path / "out", "--json", "-q")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)["training"]
    assert report["before"] < 0.5
    assert report["written"] >= report["float"] - 0.2 * (report["float"] - report["before"])


@pytest.mark.slow
def test_the_command_works_under_torchrun(training: Path, tmp_path: Path) -> None:
    arguments = ["qat", str(model_path()), "-b", "academic", "--bits", "w4a4", *LEARNT, "--train", str(training)]
    arguments += ["--steps", "8", "--batch-size", "16", "--scale-lr", "1e-3", "--optimizer", "sgd", "--lr", "0.01"]
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", "-m", "onnxq"]
    for name, start in (("one", ["-m", "onnxq"]), ("two", launcher)):
        command = [sys.executable, *start, *arguments, "-o", str(tmp_path / name)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("before training") == 1
    one, two = (json.loads((tmp_path / name / "qparams.json").read_text())["tensors"] for name in ("one", "two"))
    for tensor, values in one.items():
        np.testing.assert_allclose(two[tensor]["scale"], values["scale"], rtol=1e-4, err_msg=tensor)
