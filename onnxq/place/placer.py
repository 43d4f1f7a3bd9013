"""Graph + backend -> QuantPlan: which tensors get a quantizer, on which edges, and why.

Walks over the nodes in topological order, each linear:
1. `select` decides which nodes run quantized, following the backend's rules, the exemptions and the user;
2. `activations` and `constants` ask for a quantizer wherever a selected node needs one, `propagation` around nodes
   that only move quantized values;
3. `sharing` ties tensors that must share a scale, `apply_overrides` changes what the user wants changed;
4. placements are written, and `accounting` says what became of each node.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace

from onnxq.graph import Graph, collector_paused
from onnxq.place.accounting import account
from onnxq.place.activations import request_quantizers
from onnxq.place.apply_overrides import apply_overrides
from onnxq.place.override_resolver import OverrideResolver
from onnxq.place.propagation import Propagated, propagate
from onnxq.place.provenance import fake_quantizer, set_by
from onnxq.place.requests import Requests
from onnxq.place.run_time_scales import compute_scales_at_run_time
from onnxq.place.select import select_nodes
from onnxq.place.sharing import observed_members, tie_joined, tie_shared, unify_formats
from onnxq.place.tensor_overrides import TensorOverrides
from onnxq.types import Backend, Placement, QuantPlan
from onnxq.types.backend import check_backend
from onnxq.types.overrides import NOT_IN_BACKENDS, Override, OverrideSet
from onnxq.types.spec import why_no_derived_bias
from onnxq.types.unlike import UnlikeJoin


def place(
    graph: Graph,
    backend: Backend,
    overrides: OverrideSet | None = None,
    *,
    skip: Sequence[str] = (),
    unlike: Sequence[UnlikeJoin] = (),
    controls: OverrideSet | None = None,
) -> QuantPlan:
    """Decide what is quantized. `skip` names nodes (exact, glob, re:, op:) that stay float, `overrides` all the rest.

    The tails of `unlike` joins, which only data can show, stay float too. The graph's shapes must be inferred. A pure
    function of its arguments: the graph is not changed. `controls` is what `overrides` was called.
    """
    check_backend(backend)
    if controls is not None:
        warnings.warn("place(controls=...) is now place(overrides=...)", DeprecationWarning, stacklevel=2)
        overrides = controls
    wanted = overrides or OverrideSet()
    if skip:
        named = (Override.of_list(text, "skip") for text in skip)
        wanted = replace(wanted, overrides=(*named, *wanted.overrides))
    with collector_paused(), graph.unchanging():
        plan = _plan(graph, backend, OverrideResolver(graph, wanted, unlike))
    plan.unlike = tuple(unlike)
    return plan


def _plan(graph: Graph, backend: Backend, resolver: OverrideResolver) -> QuantPlan:
    selection = select_nodes(graph, backend, resolver)
    overrides = TensorOverrides(graph, resolver, selection)
    requests = request_quantizers(graph, backend, resolver, selection, overrides)
    propagated = propagate(graph, backend, selection, overrides, requests)
    requests.drop_unread()
    tie_joined(graph, backend, selection.nodes, requests)
    tie_shared(graph, overrides, requests)
    unify_formats(graph, backend, propagated.nodes, requests)
    groups = requests.ties.groups()
    apply_overrides(graph, resolver, overrides, groups, requests)
    compute_scales_at_run_time(graph, resolver, groups, requests)
    plan = QuantPlan(backend.name)
    plan.notes.extend(_drop_biases_without_scale(requests))
    for placement in _placements(graph, backend, resolver, requests, groups, propagated):
        plan.placements[placement.tensor] = placement
    account(graph, backend, selection, requests, propagated, plan, overridden=not resolver.empty)
    plan.left_out.update((name, said) for name, said in overrides.left_out.items() if name not in plan)
    plan.notes.extend([*requests.remarks, *_overruled(requests, overrides.left_out)])
    plan.notes.extend([*resolver.unused(), *resolver.unused_everywhere(_roles(graph, plan))])
    plan.notes.extend(selection.fused_ops.chains.unused(set(selection.selected)))
    if backend.settle is not None:
        backend.settle(graph, plan)
    return plan


def _drop_biases_without_scale(requests: Requests) -> list[str]:
    """Leave biases float whose scale would derive from formats that have none to give, such as bfp16."""
    lines = []
    for name, request in list(requests.items()):
        if request.derive is None:
            continue
        data, weight = requests[request.derive.input], requests[request.derive.weight]
        reason = why_no_derived_bias(data.spec, weight.spec)
        if data.observe_only or weight.observe_only:  # known now that all who share a quantizer have had their say
            del requests[name]
        elif reason is not None:
            del requests[name]
            lines.append(f"bias '{name}' stays float: {reason}. Give it a dtype under [bias]")
    return lines


def _placements(
    graph: Graph,
    backend: Backend,
    resolver: OverrideResolver,
    requests: Requests,
    groups: dict[str, list[str]],
    propagated: Propagated,
) -> Iterator[Placement]:
    for name, request in requests.items():
        leader = requests.ties.leader(name)
        observe: tuple[str, ...] = ()
        if leader == name and not graph.is_constant(name):
            observe = observed_members(graph, groups.get(name, [name]), propagated.nodes)
        yield Placement(
            tensor=name,
            spec=request.spec,
            role=request.role,  # type: ignore[arg-type]
            why=request.why,
            edges=() if request.observe_only else requests.edges(name),
            tie=None if leader == name else leader,
            observe=observe,
            derive=request.derive,
            observer=request.observer,
            fake_quantizer=fake_quantizer(request, backend, resolver),
            set_by=tuple(set_by(request, backend, resolver)),
            **{key: request.picks[key].value for key in NOT_IN_BACKENDS if key in request.picks},
        )


def _overruled(requests: Requests, said: dict[str, str]) -> Iterator[str]:
    """One line for every tensor that is quantized for readers for which the user wants it float."""
    for name in requests:
        readers = ", ".join(f"'{edge.node}'" for edge in sorted(requests.overruled(name)))
        if readers:
            yield (
                f"tensor '{name}' is quantized for {readers} all the same: it is an output of the model, which has "
                f"one form ({said[name]})"
            )


def _roles(graph: Graph, plan: QuantPlan) -> set[str]:
    """The kinds of tensors that have a quantizer."""
    roles: set[str] = {placement.role for placement in plan}
    roles.update("input" for name in graph.input_names if name in plan)
    roles.update("output" for name in graph.output_names if name in plan)
    return roles
