"""PreparedModule: the prepared model as a module of torch, calibrated, trained and deployed in MQBench's order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxq.compat.modules import Exported
from onnxq.compat.net_names import net_names
from onnxq.config import Config
from onnxq.errors import DataError, OnnxqError
from onnxq.pipeline.artifacts import Result
from onnxq.ptq.method import State
from onnxq.qat.batch_norm import BatchNorms
from onnxq.qat.convert import trained_graph
from onnxq.qat.deliver import deliver
from onnxq.qat.early import refuse_early
from onnxq.qat.float_checkpoint import without_wrapper
from onnxq.qat.module_net import ModuleNet, TensorsByName
from onnxq.qat.net import QatNet
from onnxq.qat.prepare import check_net
from onnxq.qat.tensors import is_tensor, results_like, true_or_false
from onnxq.qat.uncalibrated import uncalibrated
from onnxq.session.session import Calibrated, Session, open_session

if TYPE_CHECKING:
    from onnxq.compat.mqbench.prepared import PreparedModel

CALIBRATED = "fake_quant_calibrated"
"""In a state: whether every activation has a scale that calibration or training has found."""


class PreparedModule(ModuleNet):
    """The network of a prepared model, in the mode of that model.

    float, calibrate   values pass all fake-quantizers; calls are remembered as samples in calibrate
    quantize           with fake-quantizers, calibrated on all samples so far
    """

    prepared: PreparedModel
    model: Exported
    session: Session
    calibrated_on: int
    loaded: bool
    without_scale: frozenset[str]
    _of_the_file = (*ModuleNet._of_the_file, "prepared", "model", "session")

    def __init__(self, prepared: PreparedModel, batch_norms: BatchNorms) -> None:
        self.__dict__["prepared"] = prepared
        self.__dict__["model"] = Exported(prepared.graph)
        self.__dict__["session"] = self._session()
        self.__dict__["calibrated_on"] = 0
        net = QatNet(self._ready(None), batch_norms=batch_norms)
        super().__init__(net, net_names(self.model, net))
        self.calibrated_on = prepared.samples
        self.loaded = False
        self.without_scale = frozenset() if prepared.samples else self._of_activations()
        self.disable_observer()
        for path, attributes in prepared.attributes.items():
            for name, value in attributes.items():
                setattr(self._part(path), name, value)
        self.obey()

    # ---- modes ---------------------------------------------------------------------------------------------------

    def obey(self) -> None:
        """Do what the mode of the prepared model asks for; quantizing begins with a calibration on new samples."""
        mode = self.prepared.mode
        if mode in ("quantize", "calibrate_quantized"):
            self.enable_fake_quant()  # before calibration, which refuses a network that has nothing to write
        if mode == "quantize":
            self._need_scales()
            self.disable_observer()
        self.net.mute(mode in ("float", "calibrate"))

    def calibrate(self) -> None:
        """Find the scales anew, on all samples and for the weights as they are now."""
        ready = self._ready(self.settled())
        net = QatNet(ready, batch_norms=self.net.batch_norms)
        net.observe(False)
        self.renew(net, net_names(self.model, net))
        if not self.calibrated_on:
            refuse_early(self.settled())
        self.calibrated_on = self.prepared.samples
        self.loaded = False
        self.without_scale = frozenset() if self.calibrated_on else self._of_activations()

    def _need_scales(self) -> None:
        """Calibrate if there are new samples; activations that have no scale then are an error."""
        samples = self.prepared.samples
        if samples != self.calibrated_on and (samples or not self.loaded):
            self.calibrate()
        if self.session.backend.needs_data and (self.without_scale or not (self.calibrated_on or self.loaded)):
            names = sorted(self.without_scale)
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            lacking = f". Without a scale: {', '.join(names[:5])}{more}" if names else ""
            raise DataError(
                "there are no samples to calibrate on: call enable_calibration(model), then model(...) with some "
                f"batches of typical data, and then this again; or load a state that has all scales{lacking}"
            )

    def _of_activations(self) -> frozenset[str]:
        """The names of the fake-quantizers whose scale needs samples."""
        plan, names = self.net.plan, self.names.quantizers
        found = self.net.fake_quantizers.items()
        return frozenset(names[tensor] for tensor, module in found if plan[tensor].observe and module.spec.has_scale)

    def _session(self) -> Session:
        translation = self.prepared.translation
        return open_session(self.prepared.graph, backend=translation.backend, config=translation)

    def _ready(self, net: QatNet | None) -> Calibrated:
        """Plan and parameters: calibrated on the samples and the weights of now, or those to begin with."""
        session = self.session
        check_net(session)
        if not self.prepared.samples:
            return uncalibrated(session)
        opened = replace(session, dataset=None, _opened=False)
        opened.open_data(self.prepared.samples_folder)
        graph = session.prepared.graph if net is None else trained_graph(net)
        found = opened.with_prepared(replace(session.prepared, graph=graph)).calibrated()
        return replace(found, session=opened, state=State(graph, found.state.plan, found.state.qparams))

    # ---- calls ---------------------------------------------------------------------------------------------------

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Results as the inputs are given: tensors for tensors, arrays for arrays; in training always tensors."""
        prepared = self.prepared
        given = prepared.by_name(inputs, named)
        remembered = prepared.mode in ("calibrate", "calibrate_quantized")
        if remembered:
            prepared.remember(given)
        values = given if all(map(is_tensor, given.values())) else prepared.feed(given)
        try:
            if prepared.mode == "calibrate_quantized":
                self.calibrate()
                self.net.mute(False)
            found = self.run({name: given[name] if is_tensor(given[name]) else values[name] for name in given})
        except (OnnxqError, RuntimeError):
            if remembered:
                prepared.forget_last()
            raise
        results = [found[name] for name in self.net.output_names]
        as_tensors = self.training or any(map(is_tensor, given.values()))
        results = results_like(results, tensors=as_tensors)
        return results[0] if len(results) == 1 else tuple(results)

    def load_state_dict(self, state_dict: TensorsByName, strict: bool = True, assign: bool = False) -> Any:
        state_dict = without_wrapper(state_dict, self.names)
        before = self.without_scale, self.loaded, self.calibrated_on
        try:
            return super().load_state_dict(state_dict, strict, assign)
        except RuntimeError:
            self.without_scale, self.loaded, self.calibrated_on = before
            raise

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + CALIBRATED] = true_or_false(not self.without_scale)

    def _load_from_state_dict(
        self,
        state_dict: TensorsByName,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Scales count as found only if the state says so: one from before calibration has numbers in them too."""
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        key = prefix + CALIBRATED
        if key in unexpected_keys:
            unexpected_keys.remove(key)
        if strict and key not in state_dict:
            missing_keys.append(key)
        modules, needed = dict(self.fake_quantizers()), self._of_activations()
        given = {name for name in needed if set(modules[name].state_dict(prefix=f"{prefix}{name}.")) <= set(state_dict)}
        if given and bool(state_dict.get(key, False)):
            self.without_scale -= given
            if not self.without_scale:
                self.loaded, self.calibrated_on = True, self.prepared.samples
        elif given:
            self.without_scale |= given
            self.loaded, self.calibrated_on = False, 0

    def eval(self) -> PreparedModule:
        super().eval()
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> PreparedModule:
        """A module that is calibrated, trained and deployed by itself, from the samples so far."""
        twin = super().__deepcopy__(memo)
        assert isinstance(twin, PreparedModule)
        twin.__dict__["prepared"] = self.prepared.with_module(twin)
        return twin

    # ---- files ---------------------------------------------------------------------------------------------------

    def deploy(self, folder: str | Path, settings: Config) -> Result:
        """Write the files of the network as it is now."""
        self._need_scales()
        return deliver(self.settled(), folder, settings=settings, data=self.prepared.samples_folder)
