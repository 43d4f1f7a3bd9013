"""OnnxqQuantization, a pass of Olive: onnxq as a step of a workflow.

    import olive
    from onnxq.integrations.olive import package_config

    olive.run(
        {
            "input_model": {"type": "ONNXModel", "model_path": "model.onnx"},
            "passes": {"q": {"type": "OnnxqQuantization", "target": "onnxruntime", "data": "calib.npz"}},
            "output_dir": "out",
        },
        package_config=package_config(),
    )

On the command line `python -m onnxq.integrations.olive > package.json` makes the file of `olive run --package-config`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from onnxq.errors import ConfigError
from onnxq.json_file import JsonObject
from onnxq.quantize import quantize

try:
    from olive.common.config_utils import validate_config
    from olive.data.config import DataConfig
    from olive.hardware import AcceleratorSpec
    from olive.model import ONNXModelHandler
    from olive.model.utils import resolve_onnx_path
    from olive.package_config import OlivePackageConfig
    from olive.passes import Pass
    from olive.passes.pass_config import BasePassConfig, PassConfigParam
except ImportError as error:
    raise ConfigError(f"the pass needs Olive, which cannot be imported ({error}): pip install olive-ai") from error

HOME = f"{__name__ if __name__ != '__main__' else 'onnxq.integrations.olive'}.OnnxqQuantization"


class OnnxqQuantization(Pass):
    """Quantizes an ONNX model with onnxq; the files beside the model (report.html, plan.json ...) go with it."""

    @classmethod
    def _default_config(cls, accelerator_spec: AcceleratorSpec) -> dict[str, PassConfigParam]:
        return {
            "target": PassConfigParam(
                type_=str, required=True, description="Target with its options, as `onnxq quantize -b` takes it."
            ),
            "data": PassConfigParam(
                type_=str | None, default_value=None, description="Samples, as `onnxq quantize -d` takes them."
            ),
            "data_config": PassConfigParam(
                type_=DataConfig | dict | str | None, default_value=None, description="Samples, as Olive declares them."
            ),
            "settings": PassConfigParam(
                type_=dict | None,
                default_value=None,
                description="Settings of onnxq's configuration, such as effort, preprocess or skip.",
            ),
        }

    def _run_for_config(
        self, model: ONNXModelHandler, config: type[BasePassConfig], output_model_path: str
    ) -> ONNXModelHandler:
        path = Path(resolve_onnx_path(output_model_path))
        settings: JsonObject = {"name": path.stem, **(config.settings or {})}
        result = quantize(
            model.model_path,
            backend=config.target,
            data=_samples(model, config),
            config=settings,
            out=path.parent,
            progress=False,
        )
        beside = sorted(str(file) for file in result.files if file != result.model and file.suffix != ".data")
        return ONNXModelHandler(
            model_path=path.parent,
            onnx_file_name=result.model.name,
            model_attributes={**(model.model_attributes or {}), "additional_files": beside},
        )


def _samples(model: ONNXModelHandler, config: Any) -> Any:
    """What the pass is given as data, by either of its two names."""
    if config.data is not None and config.data_config is not None:
        raise ConfigError("OnnxqQuantization: data and data_config are two sources of samples, give one of them")
    if config.data_config is None:
        return config.data
    container = validate_config(config.data_config, DataConfig).to_data_container()
    return container.create_calibration_dataloader(model_path=model.model_path, io_config=model.io_config)


def package_config() -> JsonObject:
    """Olive's own passes and this one, for `olive.run(..., package_config=...)`."""
    table: JsonObject = json.loads(Path(OlivePackageConfig.get_default_config_path()).read_text(encoding="utf-8"))
    table["passes"]["OnnxqQuantization"] = {
        "module_path": HOME,
        "supported_providers": ["*"],
        "supported_accelerators": ["*"],
        "supported_precisions": ["*"],
        "supported_algorithms": [],
        "supported_quantization_encodings": ["qdq"],
        "dataset": "dataset_optional",
    }
    return table


if __name__ == "__main__":
    json.dump(package_config(), sys.stdout, indent=2)
