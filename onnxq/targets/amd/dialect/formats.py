"""What the parameters of a quantizer become: fields of onnxq's settings, and remarks on those that do nothing.

role      input, activation, weight or bias
bits      1 to 16; 32 for biases, whose scale then follows from input and weight
method    power-of-two scales: no_overflow, min_mse, min_kl, percentile_position; float scales: minmax, mse, kl,
          percentile; moving averages: ema_minmax, ema_mse, ema_quantile
"""

from __future__ import annotations

from dataclasses import dataclass, field

from onnxq.compat.translation import shown
from onnxq.errors import ConfigError, SpecError
from onnxq.json_file import JsonMapping, JsonObject
from onnxq.observers import make_observer
from onnxq.targets.amd.dialect.quantizers import BIAS_BITS, is_power_of_two
from onnxq.targets.amd.dialect.targets import Target
from onnxq.types.fake_quantizers import FakeQuantizer
from onnxq.types.spec import QuantSpec

_POWER_OF_TWO = {
    "No_OF": "no_overflow",
    "Min_MSE": "min_mse",
    "Min_KL": "min_kl",
    "Percentile": "percentile_position",
}
_FLOAT_SCALE = {"No_OF": "minmax", "Min_MSE": "mse", "Min_KL": "kl", "Percentile": "percentile"}
_AVERAGED = {"No_OF": "ema_minmax", "Min_MSE": "ema_mse", "Percentile": "ema_quantile"}

_SCALE_FREE = {"BFP16": "bfp16", "FP16": "fp16"}
DEFAULT_BITS = 8
DEFAULT_PERCENTILE = 99.99
DEFAULT_DECAY = 0.999
OF_OBSERVERS = ("method", "method_percentile", "ema_decay", "min_quantize_pos", "max_quantize_pos")
_CONSTANTS = ("weight", "bias")


@dataclass
class Settings:
    """`fields` are those of onnxq's quantizer settings; `remarks` say what a parameter does not do here, and why."""

    fields: JsonObject = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    @property
    def shares(self) -> bool:
        """Whether there is a scale that several tensors can share."""
        return self.fields.get("dtype") not in _SCALE_FREE.values()


def settings_of(kind: str, params: JsonMapping, role: str, where: str, own: FakeQuantizer | None = None) -> Settings:
    """The settings for a kind of quantizer with these parameters; only what `params` holds is set.

    `own` is a fake-quantizer of the user's, which is trained in the place of the kind's.
    """
    if own is None:
        return _settings_of(kind, params, role, where)
    if role not in own.kind.roles and not (role == "input" and "activation" in own.kind.roles):
        raise ConfigError(f"{where}: {own.name} is for {', '.join(own.kind.roles)}, not for {role}")
    if "dtype" in own.implied:
        made = Settings(scale_free_fields(own.implied["dtype"]))
        made.remarks.append(
            f"{own.name} has a number format of its own, so that parameters of other formats are not set"
        )
    else:
        made = _settings_of(kind, params, role, where)
    for name, value in own.implied.items():
        if made.fields.get(name, value) != value:
            made.remarks.append(f"{own.name} needs {name} {shown(value).lower()}")
        made.fields[name] = value
    made.fields["fake_quantizer"] = str(own)
    made.remarks.append(f"without training: {own.kind.untrained}")
    return made


def _settings_of(kind: str, params: JsonMapping, role: str, where: str) -> Settings:
    _check_contradictions(kind, params, role, where)
    if params.get("data_format") in _SCALE_FREE:
        return _scale_free(params)
    made = Settings(_number_format(params))
    if made.fields.get("dtype") == "int32":
        made.fields["symmetric"] = True
        made.remarks.append("its scale is that of input times weight, so nothing else is set")
        return made
    made.fields["power_of_two"] = is_power_of_two(kind)
    for key, name in (("symmetry", "symmetric"), ("per_channel", "per_channel"), ("narrow_range", "narrow_range")):
        if key in params:
            made.fields[name] = params[key]
    if "round_mode" in params:
        made.fields["rounding"] = _rounding(params, role, made.remarks)
    if "epsilon" in params:
        made.fields["minimum_scale"] = params["epsilon"]
    if kind == "TQTQuantizer":
        made.fields["fake_quantizer"] = "tqt"
    if kind == "MAFSQuantizer" or any(key in params for key in OF_OBSERVERS):
        made.fields["observer"] = _observer(kind, params, role, where, made.remarks)
    _remark_on_kernels(params, made)
    if "channel_axis" in params and params["channel_axis"] != -1 and not params.get("per_channel"):
        made.remarks.append("per_channel is not set, so channel_axis has no effect")
    if made.fields.get("dtype", "").startswith("u") and made.fields.get("symmetric", True):
        made.remarks.append("symmetric and without a sign: what is negative becomes 0")
    _check_spec(made.fields, where)
    return made


def one_scale(params: JsonMapping, target: Target) -> JsonObject:
    """The parameters of a quantizer that several tensors share: one format of at most 16 bits with one scale."""
    assert target.quantizer is not None
    if target.quantizer.params.get("per_channel"):
        raise ConfigError(
            f"{target.quantizer.where}: per_channel has a scale for each channel of one tensor, and '{target.group}' "
            "is shared. Set per_channel to false"
        )
    if params.get("bit_width") == BIAS_BITS:
        raise ConfigError(
            f"{target.quantizer.where}: the scale of {BIAS_BITS} bits follows from input and weight, and "
            f"'{target.group}' is shared. Give it a bit_width of 1 to 16"
        )
    if params.get("data_format") in _SCALE_FREE:
        return dict(params)
    # Everything is said, because what is not said would be that of weights on one of them, that of biases on another.
    usual = {"bit_width": DEFAULT_BITS, "symmetry": True, "round_mode": "half_even", "narrow_range": False}
    return {**usual, **params, "per_channel": False}


def _check_contradictions(kind: str, params: JsonMapping, role: str, where: str) -> None:
    form = params.get("data_format")
    if is_power_of_two(kind) and params.get("symmetry") is False:
        raise ConfigError(
            f"{where}: {kind} is symmetric, its scales are powers of two without a zero point. Set symmetry to true, "
            "or use FSQuantizer"
        )
    if form in _SCALE_FREE and kind != "FSQuantizer":
        raise ConfigError(f"{where}: data_format {form} is for FSQuantizer, {kind} has INT and UINT")
    if form == "INT" and params.get("unsigned"):
        raise ConfigError(f"{where}: unsigned true contradicts data_format INT. Use UINT, or leave one of them out")
    if (form == "UINT" or params.get("unsigned")) and params.get("narrow_range"):
        raise ConfigError(
            f"{where}: narrow_range drops the lowest value of a signed format, and this one has no sign. Leave it out"
        )
    if params.get("bit_width") == BIAS_BITS and role != "bias":
        raise ConfigError(f"{where}: bit_width must be 1 to 16, {BIAS_BITS} is for a bias and not for {role}")


def _scale_free(params: JsonMapping) -> Settings:
    """BFP16 and FP16 have no scale: nothing is calibrated, and rounding is to the nearest value."""
    name = params["data_format"]
    made = Settings(scale_free_fields(_SCALE_FREE[name]))
    idle = [key for key in (*OF_OBSERVERS, "round_mode", "symmetry", "per_channel", "narrow_range") if key in params]
    if idle:
        made.remarks.append(f"{name} has no scale, so {', '.join(idle)} have no effect")
    return made


def scale_free_fields(dtype: str) -> JsonObject:
    """A type without a scale, and what it leaves no choice in; the blocks of bfp16 are its granularity."""
    fixed = {"symmetric": True, "narrow_range": False, "power_of_two": False, "rounding": "half_even"}
    return {"dtype": dtype, **fixed, **({} if dtype == "bfp16" else {"per_channel": False})}


def _number_format(params: JsonMapping) -> JsonObject:
    bits = params.get("bit_width")
    if "unsigned" not in params and "data_format" not in params:
        return {} if bits is None else {"dtype": "int32"} if bits == BIAS_BITS else {"bits": bits}
    # The document prints "unsigned": false beside UINT, so that alone is no contradiction.
    unsigned = params.get("data_format") == "UINT" or params.get("unsigned", False)
    return {"dtype": f"{'u' if unsigned else ''}int{DEFAULT_BITS if bits is None else bits}"}


def _rounding(params: JsonMapping, role: str, remarks: list[str]) -> str:
    """HALF_UP of the framework's own quantizer means what the framework does: QuantizeLinear rounds halves to even."""
    mode = str(params["round_mode"])
    if params.get("use_framework_quant") and mode == "half_up" and role not in _CONSTANTS:
        remarks.append("the framework's quantizer is QuantizeLinear, which rounds halves to even")
        return "half_even"
    return mode


def _observer(kind: str, params: JsonMapping, role: str, where: str, remarks: list[str]) -> str:
    method = str(params.get("method", "No_OF"))
    averaged = kind == "MAFSQuantizer" and role not in _CONSTANTS
    if averaged and method not in _AVERAGED:
        raise ConfigError(
            f"{where}: there is no moving average of {method}. Use {', '.join(_AVERAGED)}, or FSQuantizer, which "
            "searches over all samples"
        )
    names = _AVERAGED if averaged else _POWER_OF_TWO if is_power_of_two(kind) else _FLOAT_SCALE
    wanted: JsonObject = {"name": names[method]}
    if averaged:
        wanted["decay"] = params.get("ema_decay", DEFAULT_DECAY)
    elif "ema_decay" in params:
        remarks.append("a constant is seen once, so ema_decay has no effect on it")
    if method == "Percentile":
        share = params.get("method_percentile", DEFAULT_PERCENTILE)
        wanted.update({"threshold": round(share / 100.0, 12)} if averaged else {"percentile": share})
    elif "method_percentile" in params:
        remarks.append(f"method is {method}, so method_percentile has no effect")
    for key, name in (("min_quantize_pos", "min_position"), ("max_quantize_pos", "max_position")):
        if key in params:
            wanted[name] = params[key]
    try:
        return str(make_observer(wanted))
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _remark_on_kernels(params: JsonMapping, made: Settings) -> None:
    if "use_framework_quant" in params:
        made.remarks.append("QuantizeLinear and DequantizeLinear stand in the file either way")
    if params.get("use_fixneuron_quant"):
        made.remarks.append("no effect of use_fixneuron_quant: the model with FixNeuron nodes is written in any case")


def _check_spec(fields: JsonMapping, where: str) -> None:
    """Refuse a format that cannot exist now, with the place where it was asked for."""
    dtype = fields.get("dtype") or (f"int{fields['bits']}" if "bits" in fields else None)
    if dtype is None:
        return
    names = ("symmetric", "narrow_range", "power_of_two", "rounding")
    try:
        QuantSpec(dtype, **{name: fields[name] for name in names if name in fields})
    except SpecError as error:
        raise ConfigError(f"{where}: {error}") from None


def described(fields: JsonMapping) -> str:
    """Settings in one line, for a row of the table."""
    return ", ".join(
        f"{name} {value if isinstance(value, str) else shown(value).lower()}" for name, value in fields.items()
    )
