"""plan + data -> statistics: which statistics a plan needs, and running the model to fill them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.observers import Observer, RangeStatistic, make_observer
from onnxq.runtime.collect import Engine, Progress, collect
from onnxq.runtime.feeds import Feed
from onnxq.runtime.kept_tap import KeptTap
from onnxq.runtime.pinned import pinned_beyond
from onnxq.runtime.samples import Shard
from onnxq.types import PerBlock, PerChannel, Placement, QuantPlan, QuantSpec

StatisticsOf = dict[str, dict[str, RangeStatistic]]
"""Tensor -> key -> statistic; a key is a short text that tells the statistics of one tensor apart."""


@dataclass(frozen=True)
class Gathered:
    """What was seen of a model's tensors; any observer can be tried on it that finds the statistic it needs.

    passes        runs through the data: more than one when the observed tensors did not fit into memory together
    unreachable   tensors that no run can return -> the reason
    beyond        what was pinned beyond the tensors that every run pins (`pinned_beyond`): beside other ones the same
                  tensors may have other last bits, so such statistics are never put together
    """

    statistics: Mapping[str, Mapping[str, RangeStatistic]] = field(default_factory=dict)
    samples: int = 0
    passes: int = 0
    seconds: float = 0.0
    unreachable: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()

    def range_of(self, tensor: str) -> tuple[float, float] | None:
        """The smallest and the largest finite value that was seen of a tensor; None where it was not observed."""
        for statistic in self.statistics.get(tensor, {}).values():
            if statistic.rows > 0 and (statistic.count > 0).any():
                return float(statistic.minimum.min()), float(statistic.maximum.max())
        return None

    def find(self, tensor: str, observer: Observer, spec: QuantSpec) -> RangeStatistic:
        """The statistic of a tensor that an observer needs; a histogram serves where a range is enough."""
        kinds = self.statistics.get(tensor, {})
        for reusable in (False, True):
            key = statistic_key(observer, spec, tensor, reusable=reusable)
            if key in kinds:
                return kinds[key]
        needed = statistic_key(observer, spec, tensor)
        has = f"only {', '.join(kinds)}" if kinds else "none at all"
        raise UnsupportedError(
            f"observer '{observer}' needs the statistic '{needed}' of tensor '{tensor}', but {has} was collected, "
            "perhaps for another target: give the data (-d) as well, and what is missing is collected"
        )


def activation_leaders(plan: QuantPlan) -> list[Placement]:
    """The placements whose range comes from running the model."""
    return [p for p in plan if p.tie is None and p.derive is None and p.observe]


def statistic_key(observer: Observer, spec: QuantSpec, tensor: str, *, reusable: bool = False) -> str:
    """Equal for observers and formats that one statistic of a tensor can serve.

    `reusable` asks for a histogram where a range would do, so that other observers can read it later.
    """
    kind, axis, *rest = observer.statistic_key(channel_axis(spec, tensor), spec)
    kind = "histogram" if reusable and kind == "range" else kind
    return " ".join([kind, *([] if axis == "None" else [f"axis {axis}"]), *(part for part in rest if part)])


def channel_axis(spec: QuantSpec, tensor: str) -> int | None:
    """The axis along which a computed tensor is observed."""
    granularity = spec.scale_granularity
    if isinstance(granularity, PerBlock):
        raise UnsupportedError(f"'{tensor}' is computed at run time and cannot be quantized {granularity}")
    return granularity.axis if isinstance(granularity, PerChannel) else None


def wanted_statistics(leaders: Iterable[Placement], *, reusable: bool = False) -> StatisticsOf:
    """Empty statistics for everything that the leaders observe; what looks at a tensor alike shares one."""
    wanted: StatisticsOf = {}
    for placement, observer in with_observers(leaders):
        axis = channel_axis(placement.spec, placement.tensor)
        for tensor in placement.observe:
            kinds = wanted.setdefault(tensor, {})
            key = statistic_key(observer, placement.spec, placement.tensor, reusable=reusable)
            if key not in kinds:
                upgrade = reusable and observer.statistic == "range"
                maker = make_observer("percentile") if upgrade else observer
                kinds[key] = maker.new_statistic(axis, placement.spec)
    return wanted


def with_observers(leaders: Iterable[Placement]) -> Iterator[tuple[Placement, Observer]]:
    """Each placement with its observer; equal descriptions are read once."""
    observers: dict[str, Observer] = {}
    for placement in leaders:
        if placement.observer not in observers:
            observers[placement.observer] = make_observer(placement.observer)
        yield placement, observers[placement.observer]


def check_mergeable(leaders: Iterable[Placement]) -> None:
    """Refuse observers whose result depends on the order of the samples, which parts of the data do not have."""
    for placement, observer in with_observers(leaders):
        if observer.new_statistic(None, placement.spec).ordered:
            raise UnsupportedError(
                f"observer '{observer}' of tensor '{placement.tensor}' depends on the order of the samples, so they "
                "cannot be divided into shards or among processes: run one process on all of them, or use an observer "
                "such as minmax, percentile, mse or kl"
            )


def gather(
    graph: Graph,
    leaders: Sequence[Placement],
    dataset: Iterable[Feed],
    *,
    engine: Engine | None = None,
    shard: Shard | None = None,
    reusable: bool = False,
    progress: Progress | None = None,
    beside: Mapping[str, RangeStatistic] | None = None,
    kept: KeptTap | None = None,
) -> Gathered:
    """Run the float graph over the data (or over one shard of it) and collect what the leaders' observers need.

    `beside` are statistics of tensors that the same run fills, for somebody else; `kept` as for `collect`.
    """
    statistics = wanted_statistics(leaders, reusable=reusable)
    filled = {tensor: list(kinds.values()) for tensor, kinds in statistics.items()}
    for tensor, statistic in (beside or {}).items():
        filled.setdefault(tensor, []).append(statistic)
    report = collect(graph, dataset, filled, engine=engine, shard=shard, progress=progress, kept=kept)
    return Gathered(
        statistics,
        report.samples,
        report.passes,
        report.seconds,
        report.unreachable,
        report.notes,
        pinned_beyond(graph, filled),
    )
