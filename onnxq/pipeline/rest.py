"""Half precision between quantizers: what is decided before files are written, and how files are run that are so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from onnxq.emit.qdq import to_qdq
from onnxq.graph import Graph
from onnxq.half import half_kind, judge_rest, rounded_scales
from onnxq.runtime import Dataset
from onnxq.session.prepare import Prepared
from onnxq.temporary import temporary_folder
from onnxq.types import Backend, QParamsTable, QuantPlan
from onnxq.types.rest import RestPlan

WITHOUT_DATA = (
    "no data shows how large values get: whatever depends on it (norms, sums, Softmax, exponentials) stays float32. "
    "Give samples with -d"
)
RUN_ROUNDED = (
    "onnxruntime has no {dtype} kernels: what was checked is the same model in float32, with every result rounded to "
    "{dtype}"
)


def decide_rest(
    prepared: Prepared, plan: QuantPlan, qparams: QParamsTable, dataset: Dataset | None
) -> tuple[QuantPlan, QParamsTable, list[str]]:
    """The plan with what computes in half precision, unless it says so, and what is worth saying about it."""
    wish = prepared.backend.rest
    assert wish is not None
    kind = half_kind(wish.dtype)
    said = []
    if wish.scales:
        qparams = rounded_scales(qparams, kind)
    if plan.rest is None:
        keep, engine = prepared.config.keep_float32, prepared.config.engine()
        rest = judge_rest(prepared.graph, plan, qparams, wish, dataset, keep=keep, engine=engine)
        plan = replace(plan, rest=rest)
        said += [WITHOUT_DATA] if dataset is None else []
    assert plan.rest is not None
    said.append(_counted(plan.rest))
    return plan, qparams, said + ([] if kind.runs else [RUN_ROUNDED.format(dtype=kind.name)])


def _counted(rest: RestPlan) -> str:
    codes = Counter(reason.code for reason in rest.float32.values())
    why = ", ".join(f"{count} {code}" for code, count in codes.most_common())
    return f"{len(rest.half)} nodes compute in {rest.dtype}, {len(rest.float32)} in float32{f' ({why})' if why else ''}"


@contextmanager
def stand_in(graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend) -> Iterator[Path | None]:
    """A file in float32 that computes what one with half precision says, None for other files.

    On most processors onnxruntime computes float16 in float32, and rounds only where it has a kernel.
    """
    if plan.rest is None or not plan.rest.half:
        yield None
        return
    rounded, _ = to_qdq(graph, plan, qparams, backend, rounded=True)
    with temporary_folder() as folder:
        path = folder / "rounded.onnx"
        rounded.save(path)
        yield path
