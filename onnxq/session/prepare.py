"""A model made ready for a backend: loaded, through the passes, placed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx

from onnxq.config import Config, ConfigSource, override_set, read_config, resolve
from onnxq.errors import ConfigError, ModelError, UnsupportedError
from onnxq.glance import short_name, short_repr, tally
from onnxq.graph import Graph
from onnxq.observers import make_observer
from onnxq.passes import Pass, PassReport, run_passes
from onnxq.passes.batchnorm import batchnorms_in_training, check_batchnorm_statistics
from onnxq.passes.remove_dropout import dropouts_in_training
from onnxq.place import place
from onnxq.place.finite import check_constants_are_finite
from onnxq.place.legal import check_every_operator_has_a_rule, check_opset, check_plan
from onnxq.session.model_io import apply_io_settings
from onnxq.strip import quantized_operators
from onnxq.targets import get_backend
from onnxq.types import Backend, QuantPlan
from onnxq.types.note import Note
from onnxq.types.overrides import Override
from onnxq.types.reason import Reason
from onnxq.types.tuning import Tuning
from onnxq.types.unlike import UnlikeJoin


@dataclass
class Prepared:
    """A float graph after a backend's passes, ready to be placed, calibrated or emitted.

    `own_passes` are the registered ones that the caller added, `target` is the backend as it was named. `tuning` says
    which nodes the settings leave float because they are faster so.
    """

    graph: Graph
    backend: Backend
    config: Config
    passes: list[PassReport] = field(default_factory=list)
    own_passes: tuple[str, ...] = ()
    target: str | None = None
    tuning: Tuning | None = None

    def __repr__(self) -> str:
        changed = [report.name for report in self.passes if report.changed]
        passes = f"changed by {tally(changed)}" if changed else "unchanged by passes"
        return short_repr("Prepared", f"for {short_name(self.backend.name)}", passes, repr(self.graph))


def dead_notes(prepared: Prepared) -> tuple[str, ...]:
    """What the model held that no output depends on, as the first removal of such nodes found it."""
    first = next((report for report in prepared.passes if report.name == "remove_dead"), None)
    removed = () if first is None else first.removed
    return tuple(
        Note("dead_node", f"node '{name}' is removed: no output of the model depends on it") for name in removed
    )


Model = str | Path | onnx.ModelProto | Graph
"""What can be given as a model."""


def load_model(model: Model) -> Graph:
    """A graph of one's own: changes to it do not reach the caller's object or file."""
    if isinstance(model, Graph):
        return model.copy()
    if isinstance(model, onnx.ModelProto):
        return Graph.from_model(model)
    if not isinstance(model, str | Path):
        raise ModelError(f"a model is a path, a ModelProto or a Graph, not a {type(model).__name__}")
    return Graph.load(model)


def prepare(
    model: Model,
    backend: str | Backend | None = None,
    config: ConfigSource = None,
    *,
    passes: Sequence[str | Pass] = (),
) -> Prepared:
    """Run the backend's passes, then the caller's, and infer shapes; repeating it gives the same graph.

    Without a `backend` the configuration names it.
    """
    graph = model if isinstance(model, Graph) else load_model(model)
    settings = read_config(config, unused=("data",) if backend is None else ("data", "backend"))
    target = resolved_backend(settings, chosen_backend(backend, settings))
    apply_io_settings(graph, settings)
    return run_all_passes(graph, target, settings, passes, backend)


def resolved_backend(settings: Config, backend: Backend) -> Backend:
    """The target that the settings make of a backend; a wrong observer is an error now, not after minutes."""
    target = resolve(settings, backend)
    for observer in (target.activation_observer, target.weight_observer):
        make_observer(observer)
    return target


def run_all_passes(
    graph: Graph, backend: Backend, settings: Config, passes: Sequence[str | Pass], target: str | Backend | None
) -> Prepared:
    """The graph after the passes of the backend, of the settings and of the caller; `target` is what he gave."""
    if isinstance(passes, str):
        raise ConfigError(f"passes is a list: write [{passes!r}]")
    if graph.shapes_known():
        graph.sort()
    else:
        graph.infer_shapes()
    reports = run_passes(graph, [*backend.passes, *settings.passes, *passes])
    check_batchnorm_statistics(graph)  # behind the passes, which make constants of what can be computed
    if not graph.shapes_known():
        graph.infer_shapes()
    named = tuple(item for item in passes if isinstance(item, str))
    wanted = target if target is not None else settings.backend
    return Prepared(graph, backend, settings, reports, named, wanted if isinstance(wanted, str) else None)


def chosen_backend(backend: str | Backend | None, config: Config) -> Backend:
    """The target that was given, else the one that the configuration names."""
    wanted = backend if backend is not None else config.backend
    if wanted is None:
        raise ConfigError(
            "say for which target: -b BACKEND (see 'onnxq list backends'), or backend = ... in the configuration"
        )
    try:
        return get_backend(wanted)
    except ConfigError as error:
        said = config.source("backend") if backend is None else "backend"
        raise ConfigError(str(error) if said == "backend" else f"{said}: {error}") from None


def make_plan(
    prepared: Prepared, *, strict: bool = False, unlike: Sequence[UnlikeJoin] = (), more: Sequence[Override] = ()
) -> QuantPlan:
    """Place quantizers and hold them against the target's limits; `unlike` is what the data showed (`float_tails`).

    What the settings say of the same thing goes before `more`.

    A model in which nothing can be quantized is refused with the reasons; with `strict` so is one with an operator that
    the target has no rule for.
    """
    check_opset(prepared.graph, prepared.backend)
    wanted = override_set(prepared.config)
    wanted = replace(wanted, overrides=(*more, *wanted.overrides))
    plan = place(prepared.graph, prepared.backend, wanted, unlike=unlike)
    check_plan(plan, prepared.backend)
    check_constants_are_finite(prepared.graph, plan)
    if strict:
        check_every_operator_has_a_rule(prepared.graph, plan, prepared.backend)
    if prepared.tuning is not None:
        _say_what_was_timed(plan, prepared.tuning)
    plan.config = prepared.config.recorded()
    found = quantized_operators(prepared.graph)
    already = f"{found.total()} nodes of this model are quantized already ({_counted(found)})"
    if not plan.quantized:
        reasons = list(dict.fromkeys(plan.left_float.values()))
        shown = "; ".join(reasons[:4]) + ("; ..." if len(reasons) > 4 else "")
        way = f"{already}: {_STRIP}, then quantize that" if found else _OTHER_TARGET
        raise UnsupportedError(
            f"nothing in this model can be quantized for {prepared.backend.name}: {shown or 'it has no nodes'}. {way}"
        )
    if found:
        plan.notes.append(f"{already} and stay as they are. To quantize all of it anew: {_STRIP}, and quantize that")
    plan.notes += untimed(prepared.config)
    training = batchnorms_in_training(prepared.graph)
    if training:
        plan.notes.append(
            f"{len(training)} BatchNormalization nodes are in training mode ('{training[0]}'): every result depends on "
            "the other samples of its batch, and their running statistics are not used. Export the model in eval()"
        )
    dropping = dropouts_in_training(prepared.graph)
    if dropping:
        plan.notes.append(
            f"{len(dropping)} Dropout nodes are in training mode ('{dropping[0]}'): they drop values at random "
            "whenever the file runs. Export the model in eval()"
        )
    return plan


def _say_what_was_timed(plan: QuantPlan, tuning: Tuning) -> None:
    """Nodes that the settings leave float because they were measured have that as their reason."""
    for node, group in tuning.float_nodes.items():
        if node in plan.left_float:
            plan.left_float[node] = Reason(
                "measured_slower",
                f"measured slower in integers: with {group.name} in float the file was {group.times_as_fast:.2f} times "
                "as fast",
            )


_OTHER_TARGET = (
    "Choose another target: 'onnxq list backends' lists them, 'onnxq list backends NAME' says what one is for"
)

_STRIP = "make a float model of it with 'onnxq strip MODEL -o float.onnx'"
"""The way out for a model that is quantized already."""


def _counted(operators: Counter[str]) -> str:
    return ", ".join(f"{count} {op}" for op, count in operators.most_common())


def untimed(config: Config) -> list[str]:
    """What a run says that is to place quantizers by measured latency, and is not the one that measures it."""
    if config.optimize_for is None:
        return []
    return [f"no effect: {config.source('optimize_for')}: nodes are timed by 'onnxq quantize' alone"]
