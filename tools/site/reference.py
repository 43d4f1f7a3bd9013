"""The pages of the Python reference: which names they have. Texts and signatures come from the docstrings.

A name is listed by the path that users import it by. `tests/tools/test_site_reference.py` holds the list against the
code: every public name of `onnxq` and of the documented packages is on one page and has a docstring.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ReferencePage:
    """One page: `names` are whole paths, in the order of the page; an empty line of `sections` has no heading."""

    name: str
    title: str
    about: str
    sections: tuple[tuple[str, str], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All paths of the page."""
        return tuple(name for _, names in self.sections for name in names.split())


PAGES = (
    ReferencePage(
        "run",
        "Runs and results",
        "Whole runs and single stages, as `import onnxq` has them. Walks through them: [Python](../python.md).",
        (
            ("Whole runs", "onnxq.quantize onnxq.Result onnxq.Config onnxq.read_config"),
            ("Studies", "onnxq.diagnose onnxq.Diagnosis onnxq.sensitivity onnxq.Sensitivity onnxq.search onnxq.Found"),
            ("Layers restored", "onnxq.restore_layers onnxq.Held onnxq.Subject"),
            ("Single stages", "onnxq.prepare onnxq.Prepared onnxq.place onnxq.calibrate onnxq.refine onnxq.emit"),
            ("Looking at files", "onnxq.simulate onnxq.lint onnxq.compare onnxq.verify.LayerError"),
            ("Metrics", "onnxq.evaluate onnxq.Evaluation"),
            ("Two runs", "onnxq.diff.diff_runs onnxq.diff.RunDiff"),
            ("Speed", "onnxq.bench onnxq.Bench"),
            ("Version", "onnxq.__version__"),
        ),
    ),
    ReferencePage(
        "errors",
        "Errors and warnings",
        "What onnxq raises on purpose; how to treat warnings: [Python](../python.md#warnings-and-errors).",
        (
            (
                "",
                "onnxq.OnnxqError onnxq.ModelError onnxq.DataError onnxq.ConfigError onnxq.SpecError "
                "onnxq.UnsupportedError onnxq.MachineError onnxq.CheckFailed onnxq.OnnxqWarning",
            ),
        ),
    ),
    ReferencePage(
        "types",
        "Values between the stages",
        "The formats, parameters and plans that travel from stage to stage. Their files: [formats](../formats.md).",
        (
            ("Number formats", "onnxq.QuantSpec onnxq.PerTensor onnxq.PerChannel onnxq.PerBlock"),
            ("", "onnxq.types.Granularity"),
            ("Parameters", "onnxq.QParams onnxq.QParamsTable"),
            ("The plan", "onnxq.QuantPlan onnxq.Placement onnxq.types.Edge onnxq.types.BiasOf"),
        ),
    ),
    ReferencePage(
        "graph",
        "Graphs",
        "Reading, asking and editing models in memory. With examples: [the graph API](../graph-api.md).",
        (
            ("The model", "onnxq.load onnxq.Graph onnxq.graph.Node onnxq.graph.Variable onnxq.graph.Constant"),
            ("", "onnxq.graph.Use onnxq.graph.bodies"),
            ("Patterns", "onnxq.graph.Op onnxq.graph.Any onnxq.graph.Const onnxq.graph.Pattern onnxq.graph.Match"),
            ("", "onnxq.graph.parse_pattern"),
            ("Names and units", "onnxq.graph.Names onnxq.graph.Origins onnxq.graph.Unit onnxq.graph.Units"),
            ("Memory", "onnxq.graph.LazyValues onnxq.graph.DeferredValues onnxq.graph.collector_paused"),
        ),
    ),
    ReferencePage(
        "passes",
        "Passes",
        "Float graph in, equal float graph out. How to write one: [passes](../graph-api.md#passes).",
        (
            ("", "onnxq.PASSES onnxq.PassResult onnxq.run_passes onnxq.passes.fuse_pattern"),
            ("", "onnxq.passes.Pass onnxq.passes.PassReport onnxq.passes.APPROXIMATING"),
        ),
    ),
    ReferencePage(
        "backends",
        "Backends",
        "A target as data, and what its folder can register. How to write one: "
        "[adding a backend](../backends.md#adding-a-backend), [new hardware](../new-hardware.md).",
        (
            ("Targets", "onnxq.BACKENDS onnxq.get_backend onnxq.Backend"),
            ("Rules and limits", "onnxq.types.Scheme onnxq.types.OpRule onnxq.types.NodeFacts"),
            ("", "onnxq.types.SameScaleRule onnxq.types.Limits onnxq.types.Option onnxq.types.KnownAs"),
            ("Files of a target", "onnxq.emit.EMITTERS onnxq.emit.Emitter onnxq.emit.EmitRequest onnxq.emit.Emitted"),
            ("", "onnxq.emit.Write onnxq.emit.file_names"),
            ("Reading files back", "onnxq.emit.READ_BACKS onnxq.emit.ReadBack onnxq.emit.read_back"),
            ("Constraints", "onnxq.refine.REFINEMENTS onnxq.refine.Refinement onnxq.refine.Refined"),
            ("Simulations", "onnxq.emit.simulations.SIMULATIONS onnxq.emit.simulations.Simulation"),
            ("Rules for files", "onnxq.lint.LINTS onnxq.lint.LintRule onnxq.lint.Finding onnxq.lint.Quantizer"),
        ),
    ),
    ReferencePage(
        "observers",
        "Observers",
        "From statistics of a tensor to its range. All of them by name, and how to write one: "
        "[observers](../observers.md).",
        (
            ("Observers", "onnxq.observers.OBSERVERS onnxq.observers.Observer onnxq.observers.make_observer"),
            ("", "onnxq.observers.qparams onnxq.observers.observe_constant onnxq.observers.ALIASES"),
            ("Statistics", "onnxq.observers.RangeStatistic onnxq.observers.HistogramStatistic"),
            ("", "onnxq.observers.EmaStatistic onnxq.observers.VotesStatistic"),
            ("", "onnxq.observers.StatisticKind onnxq.observers.statistic_from_arrays"),
        ),
    ),
    ReferencePage(
        "ptq",
        "Improvements",
        "The interface of post-training methods, also of those from a plugin: "
        "[your own improvement](../improving.md#your-own-improvement).",
        (
            ("", "onnxq.ptq.method.improvement onnxq.ptq.method.State onnxq.ptq.method.Task onnxq.ptq.method.Samples"),
            ("", "onnxq.ptq.method.Improved onnxq.ptq.method.Method"),
        ),
    ),
    ReferencePage(
        "numerics",
        "Arithmetic and formats",
        "The arithmetic of quantization, defined once, and number formats of one's own: "
        "[formats](../formats.md#a-format-of-ones-own).",
        (
            ("Quantizing", "onnxq.numerics.quantize onnxq.numerics.dequantize onnxq.numerics.fake_quantize"),
            ("", "onnxq.numerics.qparams_from_range onnxq.numerics.quotient onnxq.numerics.round_values"),
            (
                "Comparing",
                "onnxq.numerics.sqnr_db onnxq.numerics.cosine onnxq.numerics.mse onnxq.numerics.max_abs_error",
            ),
            ("", "onnxq.numerics.compare onnxq.numerics.SqnrAccumulator"),
            ("Formats", "onnxq.types.number_format.NumberFormat onnxq.types.number_format.add_format"),
            ("", "onnxq.types.number_format.number_format onnxq.types.number_format.number_formats"),
        ),
    ),
    ReferencePage(
        "training",
        "Training",
        "Training with quantizers from Python; needs torch. With examples: [training](../qat.md#from-python).",
        (
            ("Runs", "onnxq.qat.qat onnxq.qat.QatResult onnxq.qat.TrainSettings"),
            ("A loop of one's own", "onnxq.qat.prepare onnxq.qat.QatNet onnxq.qat.train onnxq.qat.Training"),
            ("", "onnxq.qat.convert onnxq.qat.Converted onnxq.qat.deliver onnxq.qat.open_training_data"),
            ("", "onnxq.qat.agreement onnxq.qat.Agreement onnxq.qat.Evaluation"),
            ("Networks", "onnxq.torchnet.to_torch onnxq.torchnet.TorchNet onnxq.torchnet.Quantizer"),
            ("Operators of one's own", "onnxq.torchnet.op onnxq.torchnet.Call onnxq.torchnet.Kernel"),
            ("", "onnxq.torchnet.Body onnxq.torchnet.Mode onnxq.torchnet.OPERATORS"),
            (
                "Fake-quantizers",
                "onnxq.torchnet.fake_quantize.FAKE_QUANTIZERS onnxq.torchnet.fake_quantize.FakeQuantize",
            ),
            ("", "onnxq.types.fake_quantizers.Kind onnxq.types.fake_quantizers.Argument"),
            ("", "onnxq.types.fake_quantizers.add_kind"),
        ),
    ),
    ReferencePage(
        "data",
        "Data",
        "What runs read. In every form: [data](../data.md).",
        (
            ("", "onnxq.runtime.open_dataset onnxq.runtime.random_dataset onnxq.runtime.Dataset"),
            ("", "onnxq.runtime.InputInfo onnxq.runtime.input_infos"),
        ),
    ),
)

WHOLE_PACKAGES = (
    "onnxq",
    "onnxq.types",
    "onnxq.graph",
    "onnxq.passes",
    "onnxq.observers",
    "onnxq.emit",
    "onnxq.lint",
    "onnxq.qat",
    "onnxq.torchnet",
    "onnxq.runtime",
    "onnxq.diff",
)
"""Packages all of whose public names are on a page."""


def find(path: str) -> object:
    """The object that a path names; a function may have the name of the module it lives in."""
    package, _, name = path.rpartition(".")
    importlib.import_module(package)
    return getattr(sys.modules[package], name)


def home(path: str) -> str:
    """Where a class or function is defined, which is unambiguous: `onnxq.quantize` is a module, too."""
    found = find(path)
    if (inspect.isclass(found) or inspect.isfunction(found)) and found.__module__.startswith("onnxq."):
        return f"{found.__module__}.{found.__qualname__}"
    return path


def stage_reference(source: Path) -> None:
    """Write the pages below `source`; mkdocstrings fills them in."""
    folder = source / "api"
    folder.mkdir(parents=True)
    rows = "".join(f"| [{page.title}]({page.name}.md) | {_linked_names(page)} |\n" for page in PAGES)
    (folder / "index.md").write_text(f"# Python reference\n\n{ABOUT}\n\n| page | names |\n|---|---|\n{rows}")
    for page in PAGES:
        (folder / f"{page.name}.md").write_text("\n".join(_lines(page)), encoding="utf-8")


ABOUT = (
    "Every public name of `onnxq`, and of the packages that plugins build on, from its docstring. "
    "A walk through the functions: [Python](../python.md)."
)


def _linked_names(page: ReferencePage) -> str:
    return ", ".join(f"[`{name.removeprefix('onnxq.')}`]({page.name}.md#{home(name)})" for name in page.names)


BEHIND_PAGES = "---\nsearch:\n  boost: 0.3\n---\n"
"""A search finds what is written for readers before the docstrings that hold the same words."""


def _lines(page: ReferencePage) -> Iterator[str]:
    yield BEHIND_PAGES
    yield f"# {page.title}\n\n{page.about}\n"
    for heading, names in page.sections:
        if heading:
            yield f"## {heading}\n"
        for name in names.split():
            yield f"::: {home(name)}\n    options:\n      heading: {name}\n      toc_label: {name.rpartition('.')[2]}\n"
