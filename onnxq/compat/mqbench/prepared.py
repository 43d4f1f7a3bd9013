"""PreparedModel: an ONNX model that is called like a torch module, and remembers what it was called with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from onnxq.compat.mqbench.spool import Spool
from onnxq.config import read_config
from onnxq.errors import ConfigError, DataError, OnnxqError, did_you_mean
from onnxq.graph import Graph
from onnxq.pipeline.artifacts import Result
from onnxq.quantize import quantize
from onnxq.runtime import input_infos
from onnxq.runtime.feeds import Feed, GivenArrays, fit_feed
from onnxq.runtime.pieces import as_array
from onnxq.runtime.session import float_session, make_session, run_session
from onnxq.session.model_io import check_io_types
from onnxq.session.session import open_session
from onnxq.temporary import OwnedFolder
from onnxq.types.translation import Row, Translation

if TYPE_CHECKING:
    from onnxq.compat.mqbench.torch_model import PreparedModule

_ANY_SQNR = -1000.0
"""Calls show what the quantized model gives, however far from the float one: they are there to find that out."""

OF_TORCH = (
    *("parameters", "named_parameters", "buffers", "named_buffers", "modules", "named_modules", "children"),
    *("named_children", "state_dict", "load_state_dict", "zero_grad", "requires_grad_", "apply", "training"),
    *("get_parameter", "get_buffer", "get_submodule", "enable_observer", "disable_observer", "enable_fake_quant"),
    *("disable_fake_quant", "freeze_bn_stats", "update_bn_stats"),
)
"""What a prepared model has of the module that `torch()` makes."""

BatchNorms = Literal["folded", "frozen", "live"]
"""What a training does with batch norms (`onnxq.qat.batch_norm`, which needs torch)."""

Mode = Literal["float", "calibrate", "calibrate_quantized", "quantize", "disabled"]

_QUANTIZED_ANYWAY = (
    "calls of the model give float results since disable_all, but the files are quantized: disable_all is about calls. "
    "To leave quantizers out of the files, switch them off: torch(), disable_fake_quant() of those, convert_deploy"
)


class PreparedModel:
    """A float model with settings, in one of five modes.

    float                calls give what the float model gives
    calibrate            the same, and every call is remembered as a sample
    calibrate_quantized  every call is remembered, and gives what the model gives that is quantized on all of them
    quantize             calls give what the quantized model gives
    disabled             as float, after disable_all: files that are written now are quantized all the same, and say so

    Call it with arrays or torch tensors: `prepared(image)`, `prepared(tokens, mask)`, `prepared(tokens=..., mask=...)`
    or `prepared({"tokens": ...})`. Results are what was given: tensors for tensors, else arrays; several outputs are a
    tuple in the order of the model.

    `torch()` is the model as a module of torch, to be trained; needs torch. From then on calls go to it, and the files
    are those of the module. `parameters()`, `state_dict()`, `train()` and the others of OF_TORCH are the module's.
    """

    def __init__(
        self,
        graph: Graph,
        translation: Translation,
        batch_norms: BatchNorms = "frozen",
        attributes: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        check_io_types(graph)
        self.graph = graph
        self.translation = translation
        self.batch_norms = batch_norms
        self.attributes = attributes or {}
        self._mode: Mode = "float"
        self._module: PreparedModule | None = None
        self._evaluating = False
        self._moves: list[tuple[Any, Any]] = []
        session = open_session(graph, config=translation)
        session.plan()  # what the target cannot take is an error now, not when the samples are there
        self._fixed = session.original
        self.inputs = input_infos(self._fixed)
        self._spool = Spool()
        self._folder: OwnedFolder | None = None
        self._float: Any = None
        self._quantized: tuple[int, Any] | None = None

    def __repr__(self) -> str:
        return f"PreparedModel({self.translation.backend}, {self.mode}, {self.samples} samples)"

    @property
    def samples(self) -> int:
        """How many calls are remembered for calibration."""
        return self._spool.count

    @property
    def rows(self) -> tuple[Row, ...]:
        """What every key of the configuration has become."""
        return self.translation.rows

    @property
    def samples_folder(self) -> Path | None:
        """Where the remembered calls are; None as long as there are none."""
        return self._spool.folder if self.samples else None

    @property
    def mode(self) -> Mode:
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        before, self._mode = self._mode, mode
        if self._module is not None:
            try:
                self._module._onnxq.obey()
            except OnnxqError:
                self._mode = before
                raise

    def torch(self) -> PreparedModule:
        """The model as a torch.nn.Module, made once: modules under their exported names, with fake-quantizers."""
        if self._module is None:
            try:
                from onnxq.compat.mqbench.torch_model import PreparedModule
            except ModuleNotFoundError as error:
                if error.name != "torch":
                    raise
                raise ConfigError("a module to train needs torch: pip install torch") from None
            module = PreparedModule(self, self.batch_norms)
            for arguments, named in self._moves:
                module.to(*arguments, **named)
            self._module = module.eval() if self._evaluating else module
        return self._module

    def with_module(self, module: PreparedModule | None) -> PreparedModel:
        """The same model with another module and samples of its own, which begin with those so far."""
        found = copy(self)
        found._module = module
        found._moves = list(self._moves)
        found._spool = self._spool.twin()
        found._folder = found._float = found._quantized = None
        return found

    def __deepcopy__(self, memo: dict[int, object]) -> PreparedModel:
        found = self.with_module(None) if self._module is None else deepcopy(self._module, memo)._onnxq.prepared
        memo[id(self)] = found
        return found

    def __getattr__(self, name: str) -> Any:
        if name not in OF_TORCH:
            raise AttributeError(f"'{type(self).__name__}' has no attribute '{name}'; perhaps its torch() has")
        return getattr(self.torch(), name)

    def train(self, mode: bool = True) -> PreparedModel:
        """As `torch().train()`."""
        self.torch().train(mode)
        return self

    def eval(self) -> PreparedModel:
        """As `torch().eval()`, also of a module that is made later; without one, nothing is in training."""
        if self._module is not None:
            self._module.eval()
        self._evaluating = True
        return self

    def to(self, *arguments: Any, **named: Any) -> PreparedModel:
        """As `torch().to()`, also of a module made later; without one, onnxruntime computes on the processor."""
        if self._module is not None:
            self._module.to(*arguments, **named)
        else:
            self._moves.append((arguments, named))
        return self

    def cpu(self) -> PreparedModel:
        return self.to("cpu")

    def cuda(self, device: Any = None) -> PreparedModel:
        return self.to("cuda" if device is None else device)

    def forget_samples(self) -> None:
        """Start calibration anew."""
        self._spool.close()
        self._spool = Spool()

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        if self._module is not None:
            return self._module(*arrays, **named)
        given = self.by_name(arrays, named)
        feed = self.feed(given)
        remembered = self.mode in ("calibrate", "calibrate_quantized")
        if remembered:
            self._spool.add(feed)
        try:
            quantized = self.mode in ("calibrate_quantized", "quantize")
            session = self._quantized_session() if quantized else self._float_session()
            results = run_session(session, None, feed, "what it was called with")
        except OnnxqError:
            if remembered:
                self._spool.drop_last()
            raise
        if any(callable(getattr(value, "detach", None)) for value in given.values()):
            from onnxq.qat.tensors import results_like  # whoever gives tensors has torch

            results = results_like(results, tensors=True)
        return results[0] if len(results) == 1 else tuple(results)

    def remember(self, given: GivenArrays) -> None:
        """Keep the inputs of a call as a sample for calibration."""
        self._spool.add(self.feed(given))

    def forget_last(self) -> None:
        self._spool.drop_last()

    def deploy(
        self,
        folder: str | Path,
        name: str,
        *,
        shapes: Mapping[str, Sequence[int | str]] | None = None,
        rows: Sequence[Row] = (),
        minimum_sqnr_db: float | None = None,
        effort: int | None = None,
    ) -> Result:
        """Quantize on the remembered samples and write the files, all through the ordinary pipeline.

        `shapes` fixes shapes of inputs, `rows` says what further keys have become, a model with an output below
        `minimum_sqnr_db` is not written, and `effort` is what is tried for accuracy.
        """
        translation = self._with_shapes(shapes or {}, rows)
        if self._module is not None:
            settings = read_config(translation, name=name, minimum_sqnr_db=minimum_sqnr_db, effort=effort)
            if settings.effort or settings.improvements:
                asked = f"effort {settings.effort}" if settings.effort else ", ".join(settings.improvements or ())
                raise ConfigError(
                    f"{asked} would change weights, and those of a model with a torch module are as it has them: "
                    "leave it out (convert_deploy(effort=0) does, for an effort of the configuration), or train the "
                    "model that quantize writes with it"
                )
            return self._module._onnxq.deploy(folder, settings, self._warnings())
        if not self.samples:
            raise DataError(
                "there are no samples to calibrate on: call enable_calibration(prepared), then prepared(...) with "
                "some batches of typical data, and then this again"
            )
        config = read_config(translation, name=name, minimum_sqnr_db=minimum_sqnr_db, effort=effort)
        told, samples = self._warnings(), self._spool.folder
        return quantize(self.graph, backend=translation.backend, data=samples, config=config, out=folder, warnings=told)

    def _warnings(self) -> tuple[str, ...]:
        return (_QUANTIZED_ANYWAY,) if self.mode == "disabled" else ()

    def _with_shapes(self, shapes: Mapping[str, Sequence[int | str]], rows: Sequence[Row]) -> Translation:
        names = self._fixed.input_names
        inputs = {key: dict(value) for key, value in self.translation.config.get("inputs", {}).items()}
        sources = dict(self.translation.sources)
        for key, shape in shapes.items():
            if key not in names:
                raise ConfigError(
                    f"the model has no input '{key}'.{did_you_mean(key, names)} Inputs: {', '.join(names)}"
                )
            inputs.setdefault(key, {})["shape"] = tuple(shape)
            sources[("inputs", key, "shape")] = f"{self.translation.tool}: convert_deploy"
        config = {**self.translation.config, **({"inputs": inputs} if inputs else {})}
        return replace(self.translation, config=config, sources=sources, rows=(*self.translation.rows, *rows))

    def by_name(self, arrays: Sequence[Any], named: GivenArrays) -> GivenArrays:
        """The inputs of a call by their names, as they were given."""
        if len(arrays) == 1 and isinstance(arrays[0], Mapping) and not named:
            named, arrays = arrays[0], []
        names = [info.name for info in self.inputs]
        if len(arrays) > len(names):
            raise DataError(f"the model has {len(names)} input(s), {', '.join(names)}; got {len(arrays)} arrays")
        given = dict(zip(names, arrays, strict=False))
        for name, value in named.items():
            if name in given:
                raise DataError(f"input '{name}' is given twice, by its place and by its name")
            given[str(name)] = value
        # What concrete_args has fixed may be fed all the same; it is a constant now.
        constant = set(self.graph.input_names) - set(names)
        return {name: value for name, value in given.items() if name not in constant}

    def feed(self, given: GivenArrays) -> Feed:
        """Arrays of the model's types and shapes; what does not fit is an error."""
        where = f"call {self.samples + 1}"
        feed = {name: as_array(value, where) for name, value in given.items()}
        return fit_feed(feed, self.inputs, where, lambda note: None)

    def _float_session(self) -> Any:
        if self._float is None:
            self._float = float_session(self._fixed)
        return self._float

    def _quantized_session(self) -> Any:
        """The session of the model quantized on all samples so far; made anew when there are more."""
        if self._quantized is None or self._quantized[0] != self.samples:
            if self._folder is not None:
                self._folder.remove()
            self._folder = OwnedFolder()
            result = self.deploy(self._folder.path / "files", "model", minimum_sqnr_db=_ANY_SQNR)
            self._quantized = (self.samples, make_session(result.model, optimize="none"))
        return self._quantized[1]
