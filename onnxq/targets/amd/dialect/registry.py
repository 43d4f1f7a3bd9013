"""quantize_registry_config: the user's values for all quantizers of a kind, inputs, and layers found by patterns.

Order of precedence, as in the tool: a built-in strategy, then entries for layers, then the user's values, which replace
those of every quantizer of their kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from onnxq.compat.translation import Translator
from onnxq.errors import ConfigError
from onnxq.graph import Graph, Node
from onnxq.json_file import JsonMapping, JsonObject
from onnxq.passes.clamp import clamp_of
from onnxq.targets.amd.dialect.axes import activation_axis
from onnxq.targets.amd.dialect.builtin import Strategy
from onnxq.targets.amd.dialect.formats import OF_OBSERVERS, Settings, described, scale_free_fields, settings_of
from onnxq.targets.amd.dialect.naming import Names
from onnxq.targets.amd.dialect.quantizers import KINDS, Quantizer, read_param
from onnxq.targets.amd.dialect.reading import texts
from onnxq.targets.amd.dialect.region import LAYER_LISTS, leave_layers_out
from onnxq.targets.amd.highest_position import HIGHEST_POSITION
from onnxq.types.translation import Effect, Outcome, no_effect

ROLES = ("input", "weight", "bias", "activation")
_USER_PARAMS = {
    "bit": "bit_width",
    "method": "method",
    "method_percentile": "method_percentile",
    "symmetry": "symmetry",
    "per_channel": "per_channel",
    "round_mode": "round_mode",
    "unsigned": "unsigned",
    "narrow_range": "narrow_range",
}
OF_ALL_ROLES = ("data_format", "use_framework_quant", "use_fixneuron_quant")
USER_KEYS = (*(f"{role}_{name}" for role in ROLES for name in _USER_PARAMS), *OF_ALL_ROLES, *LAYER_LISTS)

FIELDS = {
    "bit_width": ("dtype", "bits"),
    "data_format": ("dtype",),
    "unsigned": ("dtype",),
    "symmetry": ("symmetric",),
    "per_channel": ("per_channel", "channel_axis"),
    "channel_axis": ("channel_axis",),
    "round_mode": ("rounding",),
    "use_framework_quant": ("rounding",),
    "narrow_range": ("narrow_range",),
    "epsilon": ("minimum_scale",),
    **dict.fromkeys(OF_OBSERVERS, ("observer",)),
}
"""Parameter of a quantizer -> the settings that it decides."""


class Registry:
    """The quantizers of all roles as they are set so far, and the user's values on top of them."""

    def __init__(self, translator: Translator, strategy: Strategy, graph: Graph, *, is_dpu: bool) -> None:
        self.translator = translator
        self.is_dpu = is_dpu
        self.strategy = strategy
        self.graph = graph
        self.names = Names(graph)
        self.user: dict[str, JsonObject] = {role: {} for role in ROLES}
        self.keys: dict[tuple[str, str], str] = {}
        self.inputs: Quantizer | None = None

    # ---- what the user says of all quantizers ----------------------------------------------------------------------

    def read_user(self, given: Mapping[str, tuple[str, Any]]) -> None:
        """user_quantize_config: key -> (where it stands, value); null means that a value is not set."""
        for name, (key, value) in given.items():
            if value is None:
                self.translator.row(key, value, "not set")
            elif name in LAYER_LISTS:
                texts(value, key)
            elif name in OF_ALL_ROLES:
                for role in ROLES:
                    self._note(role, name, value, key)
            else:
                role, _, short = name.partition("_")
                self._note(role, _USER_PARAMS[short], value, key)

    def _note(self, role: str, param: str, value: Any, key: str) -> None:
        kind = self.kind_of(role)
        if param not in KINDS[kind]:
            return  # said in the row: this strategy's quantizers have no such parameter
        self.user[role][param] = read_param(kind, param, value, key)
        self.keys[role, param] = key

    def kind_of(self, role: str) -> str:
        return self.inputs.kind if role == "input" and self.inputs is not None else self.strategy.kind

    def convert_all(self, dtype: str, key: str) -> None:
        """One type without a scale for everything, in place of the strategy's quantizers."""
        for name in self.keys.values():
            raise ConfigError(f"{key} makes {dtype} of everything, and {name} asks for a quantizer: keep one of them")
        for role in ROLES:
            for field, value in scale_free_fields(dtype).items():
                self.translator.set((role, field), value, key)

    def apply_user(self, given: Mapping[str, tuple[str, Any]], *, converted: bool = False) -> None:
        """Set what holds for all quantizers of each role, and say of every key of the user what it became."""
        leave_layers_out(self.translator, self.graph, self.names, given)
        made = {} if converted else {role: self._set_role(role) for role in ROLES}
        for name, (key, value) in given.items():
            if value is None or name in LAYER_LISTS:
                continue
            roles = ROLES if name in OF_ALL_ROLES else (name.partition("_")[0],)
            param = name if name in OF_ALL_ROLES else _USER_PARAMS[name.partition("_")[2]]
            self.translator.row(key, value, self._became(param, roles, made))

    def _became(self, param: str, roles: Iterable[str], made: Mapping[str, Settings]) -> Outcome:
        if not any((role, param) in self.keys for role in roles):
            return no_effect(f"{self.strategy.kind} has no {param}")
        parts = []
        for role in roles:
            fields = {name: made[role].fields[name] for name in FIELDS.get(param, ()) if name in made[role].fields}
            if fields:
                parts.append(f"[{role}] {described(fields)}")
        remarks = dict.fromkeys(remark for role in roles for remark in made[role].remarks)
        if param == "unsigned" and roles == ("activation",) and self.only_behind_relu():
            parts = [f"dtype {self._unsigned()} behind Relu and Clip, where nothing is negative"]
        said = [*parts, *(remarks if not parts or param in OF_ALL_ROLES else ())]
        decides_nothing = param not in FIELDS and bool(said)
        return Outcome("; ".join(said) or "as it was", Effect.NO_EFFECT if decides_nothing else Effect.APPLIED)

    def _set_role(self, role: str) -> Settings:
        own = dict(self.strategy.roles.get(role, {}))
        where = f"the {role} quantizer"
        if role == "input" and self.inputs is not None:
            own = {**self.base(role, self.inputs.kind), **self.inputs.params}
            where = self.inputs.where
        params = {**own, **self.user[role]}
        behind_relu = role == "activation" and self.only_behind_relu()
        if behind_relu:
            params["unsigned"] = False
        if not params:
            return Settings()
        trained = self.inputs.own if role == "input" and self.inputs is not None else None
        made = settings_of(self.kind_of(role), params, role, where, trained)
        if made.fields.get("per_channel") and role in ("activation", "input"):
            made.fields["channel_axis"] = activation_axis(None, params.get("channel_axis", -1), where)
        for name, value in made.fields.items():
            self.translator.set((role, name), value, self._source(role, name))
        if behind_relu:
            self._unsigned_behind_relu()
        return made

    def users_key(self, role: str, field: str) -> str:
        """The key of the user that decides a setting of all quantizers of a role; "" where there is none."""
        deciding = (self.keys[role, param] for param in FIELDS if field in FIELDS[param] and (role, param) in self.keys)
        return next(deciding, "")

    def _source(self, role: str, field: str) -> str:
        if key := self.users_key(role, field):
            return key
        if role == "input" and self.inputs is not None:
            return self.inputs.where
        return f"built-in strategy {self.strategy.name}: {role} quantizer"

    def base(self, role: str, kind: str) -> JsonMapping:
        """What a quantizer has where an entry leaves something out: the strategy's values, if of the same kind."""
        return self.strategy.roles.get(role, {}) if kind == self.strategy.kind else {}

    def lift_highest_position(self, highest: int, key: str) -> None:
        """The backend ends positions at 12; who asks for higher ones gets them."""
        if self.is_dpu and highest > HIGHEST_POSITION:
            self.translator.append("skip_refinements", ["vitis_highest_position"], key)

    # ---- unsigned activations --------------------------------------------------------------------------------------

    def only_behind_relu(self) -> bool:
        """Unsigned and symmetric holds nothing negative, so that it is for what stands behind a Relu alone."""
        values = {**self.strategy.roles.get("activation", {}), **self.user["activation"]}
        return bool(values.get("unsigned")) and bool(values.get("symmetry", True))

    def _unsigned(self) -> str:
        values = {**self.strategy.roles.get("activation", {}), **self.user["activation"]}
        return f"uint{values.get('bit_width', 8)}"

    def _unsigned_behind_relu(self) -> None:
        for node in self.graph.nodes():
            if is_relu_like(self.graph, node):
                path = ("node", str(node.name), "output", "dtype")
                self.translator.set(path, self._unsigned(), self.keys["activation", "unsigned"])


def check_kind(quantizer: Quantizer, strategy: Strategy) -> None:
    """Refuse float scales in a strategy whose every scale is a power of two."""
    if strategy.positions and not quantizer.power_of_two:
        raise ConfigError(
            f"{quantizer.where}: {quantizer.kind} has float scales, and strategy {strategy.name} has powers of two "
            'everywhere: start from "strategy": "fs", where both can be'
        )


def is_relu_like(graph: Graph, node: Node) -> bool:
    """Whether a node makes nothing negative because it clamps at zero."""
    clamp = clamp_of(graph, node) if node.op in ("Relu", "Clip") else None
    return clamp is not None and clamp.low >= 0
