"""Sessions of onnxruntime: how onnxq runs a model, and what it says when onnxruntime cannot."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from onnxq.errors import ConfigError, DataError, ModelError, UnsupportedError, did_you_mean
from onnxq.graph import Graph
from onnxq.graph.values import checked_shape
from onnxq.graph.write import weight_bytes
from onnxq.machine import machine_error, refusal, unreadable
from onnxq.runtime.feeds import Feed, InputInfo
from onnxq.runtime.image_metadata import described_image_size
from onnxq.runtime.messages import lacks_memory, load_error, sentence
from onnxq.temporary import temporary_folder

if TYPE_CHECKING:
    import onnxruntime as ort

    from onnxq.runtime.sections import SectionedSession

    OrtSession = ort.InferenceSession  # for annotations where onnxruntime is not imported

Optimize = Literal["all", "basic", "none"]

CPU = "CPUExecutionProvider"

_LEVELS = {"all": "ORT_ENABLE_ALL", "basic": "ORT_ENABLE_BASIC", "none": "ORT_DISABLE_ALL"}

_WRONG_OPTIMIZERS = ["Pad_Fusion"]
"""onnxruntime 1.31 puts a Pad in front of a MaxPool into the pool, where padding counts as minus infinity."""

KEEP_PAIRS = {"session.disable_quant_qdq": "1"}
"""Configuration with which QuantizeLinear and DequantizeLinear run as they stand, and no layer computes in integers."""

MOST_IN_MEMORY = 512 * 2**20
"""Models with more weights than this reach onnxruntime through a file, which it maps: nothing holds a copy of them."""


@dataclass(frozen=True)
class ModelInMemory:
    """A serialized model and its large weights, which onnxruntime reads where they are, without copying them."""

    data: bytes
    weights: Mapping[str, np.ndarray]

    @property
    def nbytes(self) -> int:
        return len(self.data) + sum(values.nbytes for values in self.weights.values())


Model = bytes | Path | ModelInMemory
"""A model that onnxruntime can open: serialized, in a file, or serialized with its weights apart."""


def make_session(
    model: Model,
    *,
    threads: int | None = None,
    optimize: Optimize = "all",
    provider: str | None = None,
    config: Mapping[str, str] | None = None,
    optimized_path: Path | None = None,
    profile: Path | None = None,
    what: str = "the model",
) -> ort.InferenceSession:
    """A session for a serialized model or a file, on the CPU or on another execution provider (see `find_provider`).

    `config` holds session configuration entries, `optimized_path` is where onnxruntime writes the graph it is going to
    run, `profile` how the file begins into which it writes how long each kernel took, `what` names the model in errors.
    """
    import onnxruntime as ort  # here, because importing onnxq must not cost what running a model costs

    options = ort.SessionOptions()
    options.log_severity_level = 4  # errors come as exceptions, and some of them are expected
    # In the order of the file, as far as onnxruntime keeps it: readers of a tensor follow it.
    options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, _LEVELS[optimize])
    if threads is not None:
        options.intra_op_num_threads = threads
    for key, value in (config or {}).items():
        options.add_session_config_entry(key, value)
    if optimized_path is not None:
        options.optimized_model_filepath = str(optimized_path)
    if profile is not None:
        options.enable_profiling, options.profile_file_prefix = True, str(profile)
    source: bytes | str
    weights: list[ort.OrtValue] = []
    if isinstance(model, Path | str):
        source = str(model)
        if not Path(source).is_file():
            raise ModelError(f"no model file at {source}")
    elif isinstance(model, ModelInMemory):
        source = model.data
        weights = [ort.OrtValue.ortvalue_from_numpy(values) for values in model.weights.values()]
        options.add_external_initializers(list(model.weights), weights)
    else:
        source = model
    # What a provider does not implement runs on the CPU.
    providers = list(dict.fromkeys([find_provider(provider), CPU]))
    try:
        session = ort.InferenceSession(source, options, providers=providers, disabled_optimizers=_WRONG_OPTIMIZERS)
    except onnxruntime_errors() as error:
        _refuse_machine(error, model, optimized_path, what)
        raise load_error(error, what) from error
    session.weights_in_memory = weights  # onnxruntime reads them there for as long as it runs
    return session


def optimized_session(
    model: Model,
    folder: Path,
    *,
    threads: int | None = None,
    optimize: Optimize = "all",
    provider: str | None = None,
    config: Mapping[str, str] | None = None,
    profile: Path | None = None,
    what: str = "the model",
) -> tuple[ort.InferenceSession, onnx.ModelProto]:
    """A session, and the graph that onnxruntime is going to run, as it writes it into `folder`.

    Large weights are beside it in another file: one protobuf could not hold more than 2 GB.
    """
    path = folder / OPTIMIZED
    entries = {
        **(config or {}),
        "session.optimized_model_external_initializers_file_name": "optimized.data",
        "session.optimized_model_external_initializers_min_size_in_bytes": "1024",
    }
    session = make_session(
        model,
        threads=threads,
        optimize=optimize,
        provider=provider,
        config=entries,
        optimized_path=path,
        profile=profile,
        what=what,
    )
    try:
        return session, onnx.load(str(path), load_external_data=False)
    except DecodeError as error:
        _refuse_machine(error, model, path, what)
        raise ModelError(f"onnxruntime wrote an unreadable file of {what} with its optimizer: {error}") from error


OPTIMIZED = "optimized.onnx"
"""What `optimized_session` calls the file in its folder."""


def _refuse_machine(error: Exception, model: Model, optimized_path: Path | None, what: str) -> None:
    """Raise MachineError where the machine, not the model, is why onnxruntime cannot load it.

    onnxruntime tells both in the same way. So the files that it reads are opened, and the folder that it writes into is
    asked to take what is still missing.
    """
    doing = f"onnxruntime could not prepare {what}"
    files = [path for path in (model, data_file_of(model)) if path.exists()] if isinstance(model, Path) else []
    found = unreadable(files)
    if found is not None:
        raise machine_error(found, doing) from error
    if optimized_path is not None:
        size = sum(path.stat().st_size for path in files) if isinstance(model, Path) else _bytes_of(model)
        written = sum(path.stat().st_size for path in optimized_path.parent.iterdir() if path.is_file())
        found = refusal(optimized_path.parent, size - written)
        if found is not None:
            raise machine_error(found, f"{doing}: its files could not be written", size) from error
    _refuse_memory(error, doing)


def _bytes_of(model: bytes | ModelInMemory) -> int:
    return len(model) if isinstance(model, bytes) else model.nbytes


def _refuse_memory(error: Exception, doing: str) -> None:
    if lacks_memory(error):
        raise machine_error(OSError(errno.ENOMEM, f"not enough memory: {sentence(error)}"), doing) from error


def data_file_of(path: Path) -> Path:
    """The file that onnxq puts large weights of a model into."""
    return path.with_name(f"{path.name}.data")


def look_session(
    model: Model,
    *,
    threads: int | None,
    optimize: Optimize,
    provider: str | None = None,
    config: Mapping[str, str] | None = None,
) -> ort.InferenceSession:
    """A session for looking into a model: without optimizations where those of onnxruntime make it unreadable.

    onnxruntime 1.31 fuses a layer normalization of float16 that computes in float32 into a node with mixed types. For
    files that are delivered, that they load as users load them is a check of its own.
    """
    try:
        return make_session(model, threads=threads, optimize=optimize, provider=provider, config=config)
    except (ModelError, UnsupportedError):
        if optimize == "none":
            raise
        return make_session(model, threads=threads, optimize="none", provider=provider, config=config)


def find_provider(name: str | None) -> str:
    """The execution provider that a user means: None is the CPU, "cuda" stands for "CUDAExecutionProvider"."""
    if name is None:
        return CPU
    import onnxruntime as ort

    available = ort.get_available_providers()
    for known in available:
        if name.lower() in (known.lower(), known.removesuffix("ExecutionProvider").lower()):
            return str(known)
    raise ConfigError(
        f"execution provider '{name}' is not part of the installed onnxruntime.{did_you_mean(name, available)} "
        f"Available: {', '.join(available)}"
    )


def describe_runtime(provider: str | None) -> dict[str, str]:
    """What decides how sums are rounded: the version of onnxruntime and its execution provider."""
    import onnxruntime as ort

    return {"onnxruntime": str(ort.__version__), "provider": find_provider(provider)}


@contextmanager
def float_model(graph: Graph, extra_outputs: Sequence[str] = ()) -> Iterator[ModelInMemory | Path]:
    """The model of a graph, which also returns the main-graph tensors `extra_outputs`; the graph is not changed.

    A very large model is a file in a temporary folder, which is gone afterwards.
    """
    present = set(graph.output_names)
    extra = [onnx.ValueInfoProto(name=name) for name in dict.fromkeys(extra_outputs) if name not in present]
    if weight_bytes(graph.gs) <= MOST_IN_MEMORY:
        model, weights = graph.to_model_and_weights(given_names=True)
        model.graph.output.extend(extra)
        yield ModelInMemory(model.SerializeToString(), weights)
        return
    with temporary_folder() as folder:
        path = folder / "model.onnx"
        graph.save(path, external=True, given_names=True)
        if extra:
            model = onnx.load(str(path), load_external_data=False)
            model.graph.output.extend(extra)
            path.write_bytes(model.SerializeToString())
        yield path


def float_session(
    graph: Graph,
    extra_outputs: Sequence[str] = (),
    *,
    threads: int | None = None,
    optimize: Optimize = "all",
    config: Mapping[str, str] | None = None,
) -> ort.InferenceSession:
    """A session for a graph, which also returns the main-graph tensors `extra_outputs`."""
    with float_model(graph, extra_outputs) as model:
        return look_session(model, threads=threads, optimize=optimize, config=config)


def input_infos(graph: Graph) -> list[InputInfo]:
    """What a graph says about its inputs, for opening a dataset; inputs that are no tensors cannot be fed."""
    infos, image_size = [], described_image_size(graph.metadata)
    for name in graph.input_names:
        dtype, shape = graph.dtype(name), graph.shape(name)
        if dtype is None or shape is None:
            raise UnsupportedError(
                f"input '{name}' is not a tensor of known type and rank; onnxq cannot feed it. Declare its type and "
                "rank in the model, or cut the model behind it"
            )
        checked_shape([size for size in shape if isinstance(size, int)], dtype, name)
        infos.append(InputInfo(name, dtype, shape, image_size))
    return infos


def run_session(
    session: ort.InferenceSession | SectionedSession, outputs: Sequence[str] | None, feed: Feed, where: str
) -> list[Any]:
    """The outputs (all of them for None): arrays, or lists for sequences.

    An error of onnxruntime becomes one that says on which data it happened.
    """
    with _running(where):
        return list(session.run(None if outputs is None else list(outputs), feed))


def run_bound(session: Any, binding: Any, where: str) -> None:
    """A run whose inputs and outputs are bound to memory; errors as from `run_session`."""
    with _running(where):
        session.run_with_iobinding(binding)


@contextmanager
def _running(where: str) -> Iterator[None]:
    try:
        yield
    except onnxruntime_errors() as error:
        doing = f"onnxruntime could not run the model on {where}"
        _refuse_memory(error, doing)
        raise DataError(f"{doing}: {sentence(error)}") from error


def onnxruntime_errors() -> tuple[type[Exception], ...]:
    """What onnxruntime raises; its own classes have no common base."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return (
        state.EPFail,
        state.EngineError,
        state.Fail,
        state.InvalidArgument,
        state.InvalidGraph,
        state.InvalidProtobuf,
        state.NoModel,
        state.NoSuchFile,
        state.NotImplemented,
        state.RuntimeException,
        RuntimeError,
        ValueError,  # feeds with missing inputs
    )
