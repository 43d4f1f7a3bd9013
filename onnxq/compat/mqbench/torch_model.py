"""PreparedModule: the prepared model as a module of torch, calibrated, trained and deployed in MQBench's order."""

from __future__ import annotations

from collections.abc import Sequence
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
from onnxq.qat.module_net import TREE, ModuleNet, TensorsByName
from onnxq.qat.module_tree import ModuleTree
from onnxq.qat.net import QatNet
from onnxq.qat.prepare import check_net
from onnxq.qat.tensors import is_tensor, of_type, results_like, true_or_false
from onnxq.qat.uncalibrated import uncalibrated
from onnxq.runtime.feeds import GivenArrays
from onnxq.session.session import Calibrated, Session, open_session

if TYPE_CHECKING:
    from onnxq.compat.mqbench.prepared import PreparedModel

CALIBRATED = "fake_quant_calibrated"
"""In a state: whether every activation has a scale that calibration or training has found."""


class PreparedTree(ModuleTree):
    """The network of a prepared model, in the mode of that model.

    float, calibrate   values pass all fake-quantizers, as in disabled; calls are remembered as samples in calibrate
    quantize           with fake-quantizers, calibrated on all samples so far

    calibrated_on      how many samples the scales are from; `loaded` says that they are from a state
    without_scale      the fake-quantizers of activations that have none yet
    """

    def __init__(self, root: PreparedModule, prepared: PreparedModel, batch_norms: BatchNorms) -> None:
        self.prepared = prepared
        self._exported = Exported(prepared.graph)
        translation = prepared.translation
        self.session: Session = open_session(prepared.graph, backend=translation.backend, config=translation)
        net = QatNet(self._ready(None), batch_norms=batch_norms)
        super().__init__(root, net, net_names(self._exported, net))
        self.calibrated_on = prepared.samples
        self.loaded = False
        self.without_scale = frozenset() if prepared.samples else self.of_activations()
        net.observe(False)
        for path, attributes in prepared.attributes.items():
            for name, value in attributes.items():
                setattr(self.part(path), name, value)
        self.obey()

    def twin(self, root: ModuleNet, memo: dict[int, Any]) -> PreparedTree:
        """A copy that is calibrated, trained and deployed by itself, from the samples so far."""
        found = super().twin(root, memo)
        assert isinstance(found, PreparedTree)
        assert isinstance(root, PreparedModule)
        found.prepared = self.prepared.with_module(root)
        return found

    # ---- modes ---------------------------------------------------------------------------------------------------

    def obey(self) -> None:
        """Do what the mode of the prepared model asks for; quantizing begins with a calibration on new samples."""
        mode = self.prepared.mode
        if mode in ("quantize", "calibrate_quantized"):
            self.net.quantize(True)  # before calibration, which refuses a network that has nothing to write
        if mode == "quantize":
            self._need_scales()
            self.net.observe(False)
        self.net.mute(mode not in ("quantize", "calibrate_quantized"))

    def calibrate(self) -> None:
        """Find the scales anew, on all samples and for the weights as they are now."""
        ready = self._ready(self.settled())
        net = QatNet(ready, batch_norms=self.net.batch_norms)
        net.observe(False)
        self.renew(net, net_names(self._exported, net))
        if not self.calibrated_on:
            refuse_early(self.settled())
        self.calibrated_on = self.prepared.samples
        self.loaded = False
        self.without_scale = frozenset() if self.calibrated_on else self.of_activations()

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

    def of_activations(self) -> frozenset[str]:
        """The names of the fake-quantizers whose scale needs samples."""
        plan, names = self.net.plan, self.names.quantizers
        found = self.net.fake_quantizers.items()
        return frozenset(names[tensor] for tensor, module in found if plan[tensor].observe and module.spec.has_scale)

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

    # ---- calls and files -----------------------------------------------------------------------------------------

    def call(self, inputs: tuple[Any, ...], named: GivenArrays) -> Any:
        """Results as the inputs are given: tensors for tensors, arrays for arrays; in training always tensors."""
        prepared = self.prepared
        given = prepared.by_name(inputs, named)
        remembered = prepared.mode in ("calibrate", "calibrate_quantized")
        if remembered:
            prepared.remember(given)
        try:
            if prepared.mode == "calibrate_quantized":
                self.calibrate()
                self.net.mute(False)
            found = self.settled().run(self._fitting(given))
        except (OnnxqError, RuntimeError):
            if remembered:
                prepared.forget_last()
            raise
        results = [found[name] for name in self.net.output_names]
        as_tensors = self.root.training or any(map(is_tensor, given.values()))
        results = results_like(results, tensors=as_tensors)
        return results[0] if len(results) == 1 else tuple(results)

    def _fitting(self, given: GivenArrays) -> GivenArrays:
        """Inputs of the types that the net computes in; tensors stay tensors, with their gradients."""
        wanted = {info.name: self.input_type(info.dtype) for info in self.prepared.inputs}
        if all(name in wanted and of_type(value, wanted[name]) for name, value in given.items()):
            return given
        fitted = self.prepared.feed(given)  # what cannot be brought to the model's type is an error there
        return {name: value.to(wanted[name]) if is_tensor(value) else fitted[name] for name, value in given.items()}

    def deploy(self, folder: str | Path, settings: Config, warnings: Sequence[str]) -> Result:
        """Write the files of the network as it is now."""
        self._need_scales()
        data = self.prepared.samples_folder
        return deliver(self.settled(), folder, settings=settings, data=data, warnings=warnings)


class PreparedModule(ModuleNet):
    """The network of a prepared model as users of torch have it; PreparedTree does the work."""

    _onnxq: PreparedTree

    def __init__(self, prepared: PreparedModel, batch_norms: BatchNorms) -> None:
        super().__init__()
        self.__dict__[TREE] = PreparedTree(self, prepared, batch_norms)

    @property
    def prepared(self) -> PreparedModel:
        """The model that this is the module of; a copy has one of its own."""
        return self._onnxq.prepared

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Results as the inputs are given: tensors for tensors, arrays for arrays; in training always tensors."""
        return self._onnxq.call(inputs, named)

    def load_state_dict(self, state_dict: TensorsByName, strict: bool = True, assign: bool = False) -> Any:
        tree = self._onnxq
        state_dict = without_wrapper(state_dict, tree.names)
        before = tree.without_scale, tree.loaded, tree.calibrated_on
        try:
            return super().load_state_dict(state_dict, strict, assign)
        except RuntimeError:
            tree.without_scale, tree.loaded, tree.calibrated_on = before
            raise

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + CALIBRATED] = true_or_false(not self._onnxq.without_scale)

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
        tree = self._onnxq
        modules, needed = dict(tree.fake_quantizers()), tree.of_activations()
        given = {name for name in needed if set(modules[name].state_dict(prefix=f"{prefix}{name}.")) <= set(state_dict)}
        if given and bool(state_dict.get(key, False)):
            tree.without_scale -= given
            if not tree.without_scale:
                tree.loaded, tree.calibrated_on = True, tree.prepared.samples
        elif given:
            tree.without_scale |= given
            tree.loaded, tree.calibrated_on = False, 0

    def eval(self) -> PreparedModule:
        super().eval()
        return self
