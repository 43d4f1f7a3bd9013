"""One run: settings, model, target and data, made once and taken by everything that quantizes.

`open_session` reads the settings and the model. The steps of a session are called as they are needed, in this order:
`open_data`, `prepared` (the graph after the passes), `plan`, `gather`, `calibrate`; `calibrated` is all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from onnxq.calibrate import Gathered, activation_leaders, calibrate, gather, gather_into, gather_shared
from onnxq.calibrate.kept_statistics import KeptStatistics
from onnxq.collector import relax_for
from onnxq.config import Config, ConfigSource, read_config
from onnxq.distributed import Ranks, in_step
from onnxq.graph import Graph
from onnxq.passes import Pass
from onnxq.progress import Clock, Progress, TimeLimit, Tracker, silent, tracked
from onnxq.ptq.method import Samples, State
from onnxq.refine import refine
from onnxq.runtime import Dataset, input_infos, open_dataset
from onnxq.runtime.fault import own_fault
from onnxq.runtime.samples import Shard
from onnxq.session.float_tails import calibrate_with_tails, tail_notes
from onnxq.session.model_io import apply_io_settings, check_io_types, separate_sizes
from onnxq.session.prepare import (
    Model,
    Prepared,
    chosen_backend,
    dead_notes,
    load_model,
    make_plan,
    resolved_backend,
    run_all_passes,
)
from onnxq.types import Backend, QuantPlan
from onnxq.types.overrides import Override

NO_DATA = "no data was given: weights have their parameters, and accuracy was not measured"


@dataclass
class Session:
    """The values that the steps of a run share.

    original    the model as it was given, with inputs and outputs as the settings want them, before any pass
    target      the backend as the caller gave it; None takes the one that the settings name
    data        where samples come from; `dataset` are the opened ones, None where there are none
    own_passes  the caller's own passes, run after those of the backend and of the settings
    strict      refuse a model with operators that the target has no rule for
    ranks       processes that calibrate together
    tracker     follows the run: what it has taken and will take
    limit       of the time of the whole run; None where there is none, or nobody obeys it
    """

    original: Graph
    settings: Config
    target: str | Backend | None = None
    data: Any = None
    own_passes: Sequence[str | Pass] = ()
    strict: bool = False
    progress: Progress = silent
    ranks: Ranks | None = None
    clock: Clock = field(default_factory=Clock)
    tracker: Tracker = field(default_factory=Tracker)
    limit: TimeLimit | None = None
    dataset: Dataset | None = None
    _backend: Backend | None = None
    _prepared: Prepared | None = None
    _opened: bool = False

    @property
    def backend(self) -> Backend:
        """The target as it was named, before the settings change it; that of `prepared` is the one to work with."""
        if self._backend is None:
            self._backend = chosen_backend(self.target, self.settings)
        return self._backend

    @property
    def prepared(self) -> Prepared:
        """The graph after the passes, with the target that the settings make of the backend; made when first asked."""
        if self._prepared is None:
            self.progress("passes", 0, None)
            backend = resolved_backend(self.settings, self.backend)
            with self.clock.stage("passes"):
                graph = self.original.copy()
                self._prepared = run_all_passes(graph, backend, self.settings, self.own_passes, self.target)
        return self._prepared

    def open_data(self, data: Any = None, *, required: bool = False) -> None:
        """Open the calibration samples, once: `data`, else what the session was given.

        Without any, only a target that observes activations refuses to go on, unless they are `required` anyway.
        """
        if self._opened:
            return
        given = self.data if data is None else data
        with self.clock.stage("load"):
            check_io_types(self.original)
            if required or given is not None or self.backend.needs_data:
                self.use_dataset(
                    open_dataset(
                        given,
                        input_infos(self.original),
                        limit=self.settings.samples,
                        preprocess=self.settings.preprocess,
                    )
                )
        self._opened = True

    def use_dataset(self, dataset: Dataset) -> None:
        """Take samples that are opened already."""
        check_io_types(self.original)
        self.dataset, self._opened = dataset, True
        separate_sizes(self.original, dataset)

    def plan(self) -> QuantPlan:
        """Quantizers for the prepared graph, within the limits of the target."""
        prepared = self.prepared
        with self.clock.stage("place"):
            return make_plan(prepared, strict=self.strict)

    def gather(
        self, plan: QuantPlan, *, file: Path | None = None, shard: Shard | None = None, fresh: bool = False
    ) -> Gathered:
        """What the observers of a plan need to see: in memory, in a file, or by several processes together."""
        leaders = activation_leaders(plan)
        if not leaders:
            return Gathered()
        assert self.dataset is not None  # a target that observes activations was not let through without
        graph, engine, report = self.prepared.graph, self.settings.engine(), partial(self.progress, "calibrate")
        if self.ranks is not None:
            with in_step(self.ranks):
                whole = gather_shared(
                    self.ranks, graph, leaders, self.dataset, path=file, engine=engine, fresh=fresh, progress=report
                )
            return whole
        if file is not None:
            return gather_into(
                file, graph, leaders, self.dataset, engine=engine, shard=shard, fresh=fresh, progress=report
            )
        return gather(graph, leaders, self.dataset, engine=engine, shard=shard, progress=report)

    def find_parameters(
        self, plan: QuantPlan, gathered: Gathered, again: Callable[[QuantPlan], Gathered] | None = None
    ) -> Calibrated:
        """Parameters of a plan, within the constraints of the target.

        `again` gathers for a plan with float tails behind joins of unlike tensors; without it the plan is taken as it
        is.
        """
        prepared = self.prepared
        with self.clock.stage("calibrate"), own_fault(self.original, self.dataset):
            if again is None:
                found = calibrate(prepared.graph, plan, statistics=gathered)
            else:
                found = calibrate_with_tails(prepared, plan, gathered, again, strict=self.strict)
        with self.clock.stage("refine"), own_fault(self.original, self.dataset):
            refined = refine(prepared.graph, found.plan, found.qparams, prepared.backend)
        return Calibrated(
            self,
            State(prepared.graph, found.plan, refined.qparams),
            found.report.samples,
            warnings=(*found.report.warnings, *refined.warnings),
            notes=(*tail_notes(found.plan), *found.report.notes, *refined.notes),
            gathered=gathered,
        )

    def calibrated(
        self,
        statistics: Path | None = None,
        *,
        plan: QuantPlan | None = None,
        kept: Callable[[], KeptStatistics | None] = lambda: None,
    ) -> Calibrated:
        """All steps up to parameters; `statistics` is a file that keeps what was seen, `plan` one that is made.

        `kept` has what later steps are going to ask for too; it is called when the data is open.
        """
        self.open_data()
        if plan is None:
            with in_step(self.ranks):
                plan = self.plan()
        with self.clock.stage("calibrate"), own_fault(self.original, self.dataset):
            shared = kept() if statistics is None and self.ranks is None else None
            gathered = self._gather_once(shared, plan) or self.gather(plan, file=statistics)
        alone = replace(self, ranks=None)  # the other processes do not know that it is asked for

        def again(changed: QuantPlan) -> Gathered:
            return self._gather_once(shared, changed) or alone.gather(changed, file=statistics)

        found = self.find_parameters(plan, gathered, again)
        of_data = (NO_DATA,) if self.dataset is None else self.dataset.notes
        return replace(
            found,
            kept=shared,
            warnings=(*found.state.plan.notes, *found.warnings),
            notes=(*self.original.remarks, *dead_notes(self.prepared), *of_data, *found.notes),
        )

    def _gather_once(self, kept: KeptStatistics | None, plan: QuantPlan) -> Gathered | None:
        if kept is None or not activation_leaders(plan):
            return None
        return kept.of_calibration(self.prepared.graph, plan, partial(self.progress, "calibrate"))

    def recalibrated(self, state: State, samples: Samples | None = None, gathered: Gathered | None = None) -> State:
        """All parameters of a state anew, whose constants have changed: on all samples, or on some of them.

        `gathered` is what was seen of the state's graph on these samples, where somebody has collected it.
        """
        leaders = activation_leaders(state.plan)
        data = self.dataset if samples is None else samples
        if gathered is None and leaders:
            assert data is not None
            gathered = gather(state.graph, leaders, data, engine=self.settings.engine())
        qparams, plan, _ = calibrate(state.graph, state.plan, statistics=gathered or Gathered())
        return State(state.graph, plan, refine(state.graph, plan, qparams, self.prepared.backend).qparams)

    def plan_again(self, graph: Graph, plan: QuantPlan, overrides: Sequence[Override]) -> QuantPlan:
        """The plan of a graph as the settings say, with further overrides behind them; `plan` is the present one.

        Joins that the data has shown to be unlike stay apart. A study has other settings for each of its points.
        """
        prepared = replace(self.prepared, graph=graph, config=self.settings)
        return make_plan(prepared, unlike=plan.unlike, more=overrides)

    def with_settings(self, settings: Config, target: str | Backend | None) -> Session:
        """The same model and data for other settings and another target: only what they decide is made anew.

        Inputs and outputs are as the first settings wanted them.
        """
        return replace(self, settings=settings, target=target, ranks=None, clock=Clock(), _backend=None, _prepared=None)

    def with_prepared(self, prepared: Prepared) -> Session:
        """The same with a graph that has been through the passes elsewhere."""
        return replace(self, _prepared=prepared)


@dataclass(frozen=True)
class Calibrated:
    """A model with plan and parameters, before anything is written.

    samples    how many were seen
    gathered   what was seen of the tensors that the first plan observes; None where it was not kept
    kept       statistics that later steps share with calibration; None where each collects its own
    """

    session: Session
    state: State
    samples: int = 0
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    gathered: Gathered | None = None
    kept: KeptStatistics | None = None


def open_session(
    model: Model,
    *,
    backend: str | Backend | None = None,
    data: Any = None,
    config: ConfigSource = None,
    passes: Sequence[str | Pass] = (),
    strict: bool = False,
    progress: Progress | None = None,
    ranks: Ranks | None = None,
) -> Session:
    """Read settings and model; `data` is not opened before `open_data`. Arguments as those of `onnxq.quantize`."""
    clock, tracker = Clock(), tracked(progress)
    with clock.stage("load"):
        settings = read_config(
            config,
            unused=[key for key, value in (("backend", backend), ("data", data)) if value is not None],
            data=str(data) if isinstance(data, str | Path) else None,
        )
        original = load_model(model)
        relax_for(len(original.gs.nodes))
        apply_io_settings(original, settings)
    return Session(
        original,
        settings,
        target=backend,
        data=settings.data if data is None else data,
        own_passes=passes,
        strict=strict or settings.strict,
        progress=tracker,
        ranks=ranks,
        clock=clock,
        tracker=tracker,
    )
