"""The readers as data: what each one is, which pins it is installed from, and what has to be done afterwards.

The pins stand in tools/readers/NAME/requirements.txt. `without_dependencies.txt` beside it, where it exists, names
packages that are installed last and alone, because what they ask for is not needed to read models. `npm.txt` names
packages of npm.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.readers.repairs import remove_bundled_c_library

FOLDER = Path(__file__).resolve().parent
NPM_FILE = "npm.txt"
PIN_FILES = ("requirements.txt", "without_dependencies.txt", NPM_FILE)


@dataclass(frozen=True)
class Reader:
    """`module` is imported to see that an installation works (None: a package of npm, which is found by its name).

    `python` is the only version with a wheel, if any. `runs_onnxq`: its check imports onnxq,
    whose libraries are among the pins.
    """

    name: str
    package: str
    module: str | None
    reads: str
    python: str | None = None
    repairs: tuple[Callable[[Path], None], ...] = ()
    runs_onnxq: bool = False

    @property
    def check(self) -> Path:
        """The script that puts files of onnxq before this reader."""
        return FOLDER / self.name / "check.py"

    def pin_files(self) -> list[Path]:
        return [path for name in PIN_FILES if (path := FOLDER / self.name / name).exists()]

    def pins(self) -> str:
        """What an environment of this reader is made from: one requirement per line, comments left out."""
        return "".join(
            f"[{path.name}]\n" + "".join(line + "\n" for line in requirements(path)) for path in self.pin_files()
        )

    def version(self) -> str:
        """The version of the package itself, as pinned."""
        found = re.search(rf"^{re.escape(self.package)}(?:\[[\w,]+\])?==(\S+)$", self.pins(), re.MULTILINE)
        return found[1] if found else "not pinned"


def requirements(path: Path) -> list[str]:
    """The lines of a file of pins, without comments."""
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]


_ALL = (
    Reader("openvino", "openvino", "openvino", "QDQ models and FakeQuantize models; runs them on the CPU"),
    Reader(
        "onnxruntime_qnn",
        "onnxruntime-qnn",
        "onnxruntime_qnn",
        "QDQ models; runs them in the emulation of Qualcomm's HTP and writes .dlc files",
    ),
    Reader("aimet", "aimet-onnx", "aimet_onnx", "encodings files for SNPE and QNN, in all their versions"),
    Reader("quark", "amd-quark", "quark.onnx", "QDQ models for AMD Ryzen AI and Vitis AI"),
    Reader("modelopt", "nvidia-modelopt", "modelopt.onnx.quantization", "calibration caches of TensorRT"),
    Reader("rknn", "rknn-toolkit2", "rknn.api", "QDQ models for Rockchip; runs them in its simulator"),
    Reader("esp_ppq", "esp-ppq", "esp_ppq", "the number formats of ESP-DL, for comparison"),
    Reader("ncnn", "ncnn", "ncnn", "the runtime of ncnn"),
    Reader(
        "tpu_mlir",
        "tpu_mlir",
        "tpu_mlir",
        "models with calibration tables and qtables for Sophgo; compiles them and runs the chip simulators",
        python="3.10",
        repairs=(remove_bundled_c_library,),
    ),
    Reader("ultralytics", "ultralytics", "ultralytics", "its own LetterBox, beside which the preset `yolo` is held"),
    Reader("olive", "olive-ai", "olive", "the pass OnnxqQuantization, in its workflows", runs_onnxq=True),
    Reader(
        "optimum",
        "optimum-onnx",
        "optimum.onnxruntime",
        "folders that `onnxq huggingface` has written; embeds sentences with their models",
        runs_onnxq=True,
    ),
    Reader("transformers_js", "@huggingface/transformers", None, "the same folders, in node, by `dtype`"),
    Reader(
        "github_actions",
        "check-jsonschema",
        "check_jsonschema",
        "action.yml and the example workflow, by their schemas",
    ),
    Reader("mlflow", "mlflow-skinny", "mlflow", "what `--mlflow` logs", runs_onnxq=True),
)

READERS = {reader.name: reader for reader in _ALL}
