"""A float model made ready to be trained with its quantizers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from onnxq.config import Config, ConfigSource, read_config
from onnxq.config.training import TrainSettings, train_settings
from onnxq.distributed import Ranks, in_step
from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.json_file import JsonMapping
from onnxq.passes import Pass
from onnxq.progress import Progress
from onnxq.progress.time_limit import NOT_OBEYED
from onnxq.ptq.search.schedule import DEFAULT
from onnxq.ptq.search.stage import improve_calibrated
from onnxq.qat.batch_norm import BatchNorms
from onnxq.qat.net import QatNet
from onnxq.session.prepare import Model
from onnxq.session.session import Calibrated, Session, open_session
from onnxq.torchnet.fake_quantize.probe import check_fake_quantizers
from onnxq.torchnet.trainable import Trainable
from onnxq.types import Backend, QuantPlan

NOT_IMPROVED = (
    "an effort is for 'onnxq quantize': training starts from plain calibration. To start from an improved model, name "
    "improvements, or train the model_float.onnx that quantize writes"
)


def prepare(
    model: Model,
    backend: str | Backend | None = None,
    data: Any = None,
    config: ConfigSource = None,
    *,
    batch_norms: BatchNorms | None = None,
    trainable: Trainable = None,
    outputs: Sequence[str] | None = None,
    passes: Sequence[str | Pass] = (),
    strict: bool = False,
    progress: Progress | None = None,
    ranks: Ranks | None = None,
) -> QatNet:
    """A torch module of the model with a fake-quantizer for each quantizer that `onnxq.quantize` would place.

    backend, data, config  as for `onnxq.quantize`: the data is for calibration, from which the fake-quantizers start.
                           The configuration says which fake-quantizer a tensor has (`fake_quantizer`), default "fixed"
    batch_norms            "folded" into the weights before training; "frozen" or "live" apart, with fixed or learnt
                           statistics, while weights are quantized as if folded. None is what another tool's
                           configuration says, or "folded"
    trainable              patterns of the constants to train; None takes every weight, bias and scale of a norm
    outputs                tensors that the net computes in the place of the model's outputs; nodes after them are not
                           trained, need no torch implementation, and stay in the model as they are

    Train it with any loop, then call `convert`.
    """
    with in_step(ranks):
        session = open_session(
            model,
            backend=backend,
            data=data,
            config=config,
            passes=passes,
            strict=strict,
            progress=progress,
            ranks=ranks,
        )
        session.open_data()
    return prepare_session(session, batch_norms=batch_norms, trainable=trainable, outputs=outputs)


def prepare_session(
    session: Session,
    *,
    batch_norms: BatchNorms | None = None,
    trainable: Trainable = None,
    outputs: Sequence[str] | None = None,
) -> QatNet:
    """The same for a session that is open."""
    plan = check_net(session, outputs)
    ready, steps = _improved(session.calibrated(plan=plan))
    chosen = batch_norms or _of_other_tool(session.settings).get("batch_norms", "folded")
    net = QatNet(ready, batch_norms=chosen, trainable=trainable, outputs=outputs)
    net.notes += steps
    if session.settings.effort > DEFAULT:
        net.notes.append(NOT_IMPROVED)
    if session.settings.time_limit is not None:
        net.notes.append(NOT_OBEYED)
    return net


def check_net(session: Session, outputs: Sequence[str] | None = None) -> QuantPlan:
    """Refuse, before any calibration, what no net can be made of; the plan that was made for it."""
    with in_step(session.ranks):
        plan = session.plan()
        check_fake_quantizers(plan)
    _check_trainable(session.prepared.graph, outputs)
    return plan


def settings_for(session: Session, given: TrainSettings | JsonMapping | None) -> TrainSettings:
    """Settings of training, with those of another tool's configuration beneath them."""
    return train_settings(given, _of_other_tool(session.settings))


def _of_other_tool(settings: Config) -> JsonMapping:
    return {} if settings.translation is None else settings.translation.training


def _improved(ready: Calibrated) -> tuple[Calibrated, list[str]]:
    """The model after the improvements that the settings name, and a line for each: training starts from there."""
    session = ready.session
    if session.settings.improvements is None:
        return ready, []
    named = read_config(session.settings, effort=0)
    outcome, notes = improve_calibrated(replace(session, settings=named), ready.state)
    if outcome is None:
        return ready, notes
    prepared = replace(session.prepared, graph=outcome.state.graph)
    lines = [f"before training, {step.name}: {step.why}" for step in outcome.steps]
    return replace(ready, session=session.with_prepared(prepared), state=outcome.state), [*notes, *lines]


def _check_trainable(graph: Graph, outputs: Sequence[str] | None) -> None:
    """A loss is computed from tensors: a model whose output is a sequence or a map has none to give."""
    for tensor in graph.gs.outputs:
        if outputs is None and getattr(tensor, "type", "tensor_type") in ("sequence_type", "map_type"):
            kind = str(tensor.type).removesuffix("_type")
            raise UnsupportedError(
                f"output '{tensor.name}' of the model is a {kind}, and training needs tensors: name the tensors to "
                "train on with `outputs` of onnxq.qat.prepare, or cut the model in front of it"
            )
