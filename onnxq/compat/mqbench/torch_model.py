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
from onnxq.qat.tensors import is_tensor, results_like
from onnxq.qat.uncalibrated import uncalibrated
from onnxq.session.session import Calibrated, Session, open_session

if TYPE_CHECKING:
    from onnxq.compat.mqbench.prepared import PreparedModel


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
        self.disable_observer()
        for path, attributes in prepared.attributes.items():
            for name, value in attributes.items():
                setattr(self._part(path), name, value)
        self.obey()

    # ---- modes ---------------------------------------------------------------------------------------------------

    def obey(self) -> None:
        """Do what the mode of the prepared model asks for; quantizing begins with a calibration on new samples."""
        quantizing = self.prepared.mode == "quantize"
        if quantizing and self.calibrated_on != self.prepared.samples:
            self.calibrate()
        if quantizing and not (self.calibrated_on or self.loaded or not self.session.backend.needs_data):
            raise DataError(
                "there are no samples to calibrate on: call enable_calibration(model), then model(...) with some "
                "batches of typical data, and then this again; or load a state that has the scales"
            )
        if quantizing:
            self.enable_fake_quant()
            self.disable_observer()
        self.net.mute(self.prepared.mode in ("float", "calibrate"))

    def calibrate(self) -> None:
        """Find the scales anew, on all samples and for the weights as they are now."""
        ready = self._ready(self.settled())
        net = QatNet(ready, batch_norms=self.net.batch_norms)
        net.observe(False)
        self.renew(net, net_names(self.model, net))
        if not self.calibrated_on:
            refuse_early(self.settled())
        self.calibrated_on = self.prepared.samples

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
        found = super().load_state_dict(state_dict, strict, assign)
        with_scales = any(name in state_dict for name in self.state_dict() if "fake_quant" in name)
        self.loaded = self.loaded or with_scales
        return found

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
        if self.prepared.samples != self.calibrated_on and not self.loaded:
            self.calibrate()
        if not (self.calibrated_on or self.loaded or not self.session.backend.needs_data):
            raise DataError(
                "the network was not calibrated: call enable_calibration(model), then model(...) with some batches"
            )
        return deliver(self.settled(), folder, settings=settings, data=self.prepared.samples_folder)
