"""How tpu-mlir compiles the files."""

from __future__ import annotations

from collections.abc import Sequence

from onnxq.types.vendor_step import VendorStep

_NO_TOLERANCE = ("INT4", "W4INT8")
"""Modes for which model_deploy has no tolerance of its own, and ends without one."""


def compile_steps(chip: str | None, mode: str, emitters: Sequence[str], *, asymmetric: bool) -> tuple[VendorStep, ...]:
    """The two commands for a chip and the tables that are written for it; none for no chip in particular.

    `mode` is the one of operators that the table of modes does not name.
    """
    if chip is None:
        return ()
    ranges = next((one for one in emitters if "cali_table" in one), None)
    modes = next(one for one in emitters if "q_table" in one)
    ending = "cvimodel" if chip.startswith("cv") else "bmodel"
    parts = [
        f"model_deploy --mlir {{name}}.mlir --chip {chip} --quantize {mode}",
        *([] if ranges is None else [f"--calibration_table {{{ranges}}}"]),
        f"--quantize_table {{{modes}}}",
        *(["--asymmetric"] if asymmetric else []),
        *(["--tolerance 0,-100"] if mode in _NO_TOLERANCE else []),
        f"--model {{name}}.{ending}",
    ]
    return (
        VendorStep(
            "tpu-mlir reads the float model (sizes instead of N where they are free)",
            "model_transform --model_name {name} --model_def {sophgo_deploy} --input_shapes '{shapes}' "
            "--mlir {name}.mlir",
        ),
        VendorStep("tpu-mlir compiles it with the tables", " ".join(parts)),
    )
