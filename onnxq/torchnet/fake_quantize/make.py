"""The module of a placement: its kind by name, from the numbers that calibration found."""

from __future__ import annotations

from onnxq.errors import ConfigError, SpecError
from onnxq.torchnet.fake_quantize.base import FAKE_QUANTIZERS, FakeQuantize
from onnxq.types.fake_quantizers import FakeQuantizer, read_fake_quantizer
from onnxq.types.granularity import PerTensor
from onnxq.types.plan import Placement
from onnxq.types.qparams import QParams
from onnxq.types.spec import QuantSpec


def make_fake_quantizer(placement: Placement, qparams: QParams) -> FakeQuantize:
    """The module that treats `placement` in training as its fake-quantizer says; the format is that of `qparams`."""
    settings = read_fake_quantizer(placement.fake_quantizer)
    if settings.name not in FAKE_QUANTIZERS:
        raise ConfigError(
            f"fake-quantizer '{settings.name}' of '{placement.tensor}' has no module to train with: register a class "
            f'with @FAKE_QUANTIZERS.register("{settings.name}"), or use one of {", ".join(FAKE_QUANTIZERS)}'
        )
    _check_format(settings, qparams.spec, placement.tensor)
    return FAKE_QUANTIZERS.get(settings.name)(placement, qparams, settings)


def _check_format(settings: FakeQuantizer, spec: QuantSpec, tensor: str) -> None:
    for key, value in settings.implied.items():
        if key == "power_of_two" and not spec.has_scale:
            continue  # there is no scale that could be another
        held = not isinstance(spec.granularity, PerTensor) if key == "per_channel" else getattr(spec, key)
        if held != value:
            raise SpecError(
                f"fake-quantizer '{settings.name}' of '{tensor}' needs a format with {key} = {value}, got {spec}"
            )
