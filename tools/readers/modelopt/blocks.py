"""ModelOpt's own MXFP8 and NVFP4 tensors, in torch on the CPU; prints one JSON object.

blocks.py FILE.npz  for every NAME/input: quantize it along the last axis, and write to FILE_modelopt.npz
                    NAME/mxfp8 and NAME/mxfp8_scale, the real values and the scales of MXFP8QTensor, and
                    NAME/nvfp4, the real values of NVFP4QTensor with the scale of the tensor in NAME/tensor_scale
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from modelopt.torch.quantization.qtensor import MXFP8QTensor, NVFP4QTensor

MX_BLOCK, NVFP4_BLOCK = 32, 16
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def mxfp8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    exponents = MXFP8QTensor.get_weights_scaling_factor(x)
    numbers = MXFP8QTensor.quantize_with_scale(x, exponents).float()
    scale = torch.exp2(exponents.float() - 127)
    return numbers * scale.repeat_interleave(MX_BLOCK, -1), scale


def nvfp4(x: torch.Tensor, of_tensor: torch.Tensor) -> torch.Tensor:
    held, scales, _ = NVFP4QTensor.quantize(x, NVFP4_BLOCK, weights_scaling_factor_2=of_tensor)
    packed = held._quantized_data.long()
    codes = torch.stack([packed & 15, packed >> 4], -1).reshape(x.shape)
    return E2M1[codes] * (scales.float() * of_tensor).repeat_interleave(NVFP4_BLOCK, -1)


def main(path: Path) -> dict[str, object]:
    given = dict(np.load(path))
    names = sorted(key.removesuffix("/input") for key in given if key.endswith("/input"))
    results = {}
    for name in names:
        x = torch.from_numpy(given[f"{name}/input"])
        values, scale = mxfp8(x.clone())
        results |= {f"{name}/mxfp8": values.numpy(), f"{name}/mxfp8_scale": scale.numpy()}
        results[f"{name}/nvfp4"] = nvfp4(x.clone(), torch.tensor(given[f"{name}/tensor_scale"])).numpy()
    np.savez(path.with_name(f"{path.stem}_modelopt.npz"), **results)
    return {"version": version("nvidia-modelopt"), "cases": len(names)}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
