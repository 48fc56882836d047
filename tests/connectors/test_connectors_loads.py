"""Sums that are adjusted equal sums that are added up anew, whatever came and went in whatever order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from connectors.kubernetes import decode_nodes
from connectors.kubernetes.cache import Cache
from connectors.kubernetes.decode import CopyRecord, worker_copy
from connectors.kubernetes.decode_nodes import JobKey, PodUse, bound_pods, shared_sum
from connectors.kubernetes.loads import Loads
from dispatcher.core.resources import PODS as POD_RESOURCE
from dispatcher.core.resources import Resources
from dispatcher.core.snapshot import NodeView, WorkerCopy
from tests.connectors.objects import node, workload

NAMES = ("n1", "n2", "n3")
JOBS = (("Job", "team-a", "train"), ("uid", "", "uid-train"), ("Job", "team-a", "other"))
PODS = st.builds(
    PodUse,
    node=st.sampled_from(NAMES),
    requests=st.dictionaries(st.sampled_from(("cpu", "nvidia.com/gpu", "odd")), st.integers(0, 3)).map(Resources.of),
    jobs=st.lists(st.sampled_from(JOBS), max_size=3).map(tuple),
    yields=st.booleans(),
)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("pod"), st.sampled_from("abcd"), st.one_of(st.none(), PODS)),
        st.tuples(st.just("node"), st.sampled_from(NAMES), st.booleans()),
        st.tuples(st.just("restart"), st.dictionaries(st.sampled_from("abcd"), PODS), st.none()),
        st.tuples(st.just("look"), st.none(), st.none()),
    ),
    max_size=25,
)


def nodes_anew(nodes: Iterable[NodeView], pods: Iterable[PodUse]) -> tuple[NodeView, ...]:
    """Nodes by name, each with what its pods ask of it; every pod takes one of the node's `pods` as well."""
    asked: dict[str, dict[str, int]] = {}
    yielding: dict[str, dict[str, int]] = {}
    for pod in pods:
        for sums in (asked, yielding) if pod.yields else (asked,):
            taken = sums.setdefault(pod.node, {POD_RESOURCE: 0})
            taken[POD_RESOURCE] += 1
            for name, value in pod.requests:
                taken[name] = taken.get(name, 0) + value
    ordered = sorted(nodes, key=lambda n: n.name)
    return tuple(
        replace(n, requested=shared_sum(asked[n.name]), yielding=shared_sum(yielding.get(n.name, {})))
        if n.name in asked
        else n
        for n in ordered
    )


def copies_anew(records: Iterable[CopyRecord], pods: Iterable[PodUse]) -> dict[tuple[str, str], WorkerCopy]:
    """Copies by (namespace, name) in that order, each with the number of its job's pods that are on nodes."""
    bound: Counter[JobKey] = Counter()
    for pod in pods:
        bound.update(set(pod.jobs))
    return bound_pods(records, bound)


@given(CHANGES)
def test_adjusted_sums_are_those_of_a_fresh_count(changes: list[tuple[str, object, object]]) -> None:
    nodes: Cache[NodeView] = Cache()
    pods: Cache[PodUse] = Cache()
    copies: Cache[object] = Cache()
    loads = Loads(nodes, pods)
    copies.put(("team-a", "w"), 1, worker_copy(workload()))
    for version, (what, name, value) in enumerate(changes, 1):
        if what == "pod":
            pods.put(("", str(name)), version, value)  # type: ignore[arg-type]
        elif what == "node" and value:
            nodes.put(("", str(name)), version, decode_nodes.node(node(str(name), gpus=str(version))))
        elif what == "node":
            nodes.remove(("", str(name)), version)
        elif what == "restart":
            pods.restart({("", key): (version, use) for key, use in name.items()})  # type: ignore[attr-defined]
        else:
            loads.nodes()
    assert loads.nodes() == nodes_anew(nodes.values(), pods.values())
    counted = copies_anew(copies.values(), pods.values())  # type: ignore[arg-type]
    assert loads.copies(copies) == counted  # type: ignore[arg-type]


def test_pods_that_came_and_went_between_two_looks_cost_nothing() -> None:
    nodes: Cache[NodeView] = Cache()
    pods: Cache[PodUse] = Cache()
    loads = Loads(nodes, pods)
    nodes.put(("", "n1"), 1, decode_nodes.node(node("n1")))
    before = loads.nodes()
    for version in range(1, 10, 2):
        pods.put(("", "a"), version, PodUse("n1", Resources.of({"cpu": 1}), ()))
        pods.remove(("", "a"), version + 1)
    assert loads.nodes()[0] is before[0]


def test_a_node_that_did_not_change_stays_the_same_object() -> None:
    nodes: Cache[NodeView] = Cache()
    pods: Cache[PodUse] = Cache()
    loads = Loads(nodes, pods)
    for name in NAMES:
        nodes.put(("", name), 1, decode_nodes.node(node(name)))
    pods.put(("", "a"), 1, PodUse("n1", Resources.of({"cpu": 1}), ()))
    before = loads.nodes()
    pods.put(("", "b"), 2, PodUse("n2", Resources.of({"cpu": 1}), ()))
    after = loads.nodes()
    assert [old is new for old, new in zip(before, after, strict=True)] == [True, False, True]
