"""Quota in cohorts and flavor assignment of the embedded Kueue, as tables."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.embedded.flavors import Mode, assign
from connectors.embedded.jobspec import duration_s, job_of
from connectors.embedded.manifests import Inventory, ManifestError
from connectors.embedded.quota import QuotaTree
from dispatcher.core.ids import FlavorName, QueueName
from dispatcher.core.workload import PodSet
from tests import builders as b

KEY = (FlavorName("h100"), b.GPU)


def tree(*manifests: b.Manifest) -> QuotaTree:
    inventory = Inventory(manifests)
    return QuotaTree(inventory.queues.values(), inventory.cohorts.values())


def queue(name: str, gpus: int, borrow: int | None = None, lend: int | None = None, **spec: Any) -> b.Manifest:
    lines = [b.quota(b.GPU, gpus, borrow, lend)]
    return b.cluster_queue(name, b.resource_group({"h100": lines}), **spec)


def free(found: QuotaTree, name: str) -> int:
    return found.queues[name].available(KEY)


def test_a_queue_without_a_cohort_has_its_own_quota_only() -> None:
    found = tree(queue("a", 8), queue("b", 8))
    found.queues["a"].use(KEY, 5)
    assert (free(found, "a"), free(found, "b")) == (3, 8)
    assert found.queues["a"].most(KEY) == 8


def test_a_cohort_lends_what_nobody_uses() -> None:
    found = tree(queue("a", 8, cohortName="all"), queue("b", 8, cohortName="all"))
    assert (free(found, "a"), free(found, "b")) == (16, 16)
    found.queues["a"].use(KEY, 12)
    assert found.queues["a"].borrows_with(KEY, 0)
    assert (free(found, "a"), free(found, "b")) == (4, 4)
    found.queues["a"].give_back(KEY, 12)
    assert (free(found, "a"), free(found, "b")) == (16, 16)


def test_a_borrowing_limit_bounds_what_a_queue_takes_from_others() -> None:
    found = tree(queue("a", 8, borrow=2, cohortName="all"), queue("b", 8, cohortName="all"))
    assert (free(found, "a"), found.queues["a"].most(KEY)) == (10, 10)
    found.queues["a"].use(KEY, 9)
    assert (free(found, "a"), free(found, "b")) == (1, 7)


def test_a_lending_limit_keeps_the_rest_for_its_queue() -> None:
    found = tree(queue("a", 8, lend=3, cohortName="all"), queue("b", 8, cohortName="all"))
    assert free(found, "b") == 11
    found.queues["b"].use(KEY, 11)
    assert (free(found, "a"), free(found, "b")) == (5, 0)
    found.queues["a"].use(KEY, 5)
    assert (free(found, "a"), free(found, "b")) == (0, 0)
    found.queues["b"].give_back(KEY, 11)
    assert (free(found, "a"), free(found, "b")) == (11, 11)


def test_cohorts_of_cohorts_share_with_their_own_quota_and_limits() -> None:
    lines = [b.quota(b.GPU, 4, lend=1)]
    found = tree(
        b.cohort("root"),
        b.cohort("team", "root", b.resource_group({"h100": lines})),
        queue("a", 8, cohortName="team"),
        queue("b", 2, cohortName="root"),
    )
    assert (free(found, "a"), free(found, "b")) == (14, 3)
    found.queues["b"].use(KEY, 3)
    assert (free(found, "a"), free(found, "b")) == (11, 0)


def test_a_cohort_that_is_only_named_exists_and_a_cycle_of_cohorts_does_no_harm() -> None:
    found = tree(queue("a", 8, cohortName="x"), b.cohort("x", "y"), b.cohort("y", "x"))
    assert free(found, "a") == 8


# --- flavors -----------------------------------------------------------------------------------------------------


def pod_set(template: b.Manifest, pods: int = 1) -> PodSet:
    spec = job_of(b.job("x", pods=pods, template=template))
    return spec.workload("u", "o", 0, b.START).pod_sets[0]


def inventory(**queue_spec: Any) -> Inventory:
    """Two GPU flavors with labels, the second tainted, and CPU in a flavor of its own."""
    taint = {"key": "spot", "value": "yes", "effect": "NoSchedule"}
    gpu = [b.quota(b.GPU, 4)]
    return Inventory(
        [
            b.flavor("h100", {b.GPU_LABEL: "h100"}),
            b.flavor("spot", {b.GPU_LABEL: "h100", "tier": "spot"}, [taint]),
            b.flavor("cpu"),
            b.cluster_queue(
                "q",
                b.resource_group({"h100": gpu, "spot": [b.quota(b.GPU, 8)]}),
                b.resource_group({"cpu": [b.quota("cpu", 10)]}),
                **queue_spec,
            ),
        ]
    )


TOLERATION = {"key": "spot", "operator": "Exists"}
FLAVOR_CASES = {
    "the first flavor with room wins": ({}, 4, Mode.FIT, "h100"),
    "more than the first has goes to the second if its taint is tolerated": (
        {"tolerations": [TOLERATION]},
        5,
        Mode.FIT,
        "spot",
    ),
    "an untolerated taint leaves nothing": ({}, 5, Mode.NO_FIT, None),
    "a selector on a label that only another flavor has does not count against the first": (
        {"nodeSelector": {"tier": "spot"}, "tolerations": [TOLERATION]},
        1,
        Mode.FIT,
        "h100",
    ),
    "a selector on a flavor's own label decides about that flavor": (
        {"nodeSelector": {"tier": "reserved"}, "tolerations": [TOLERATION]},
        5,
        Mode.NO_FIT,
        None,
    ),
    "a selector on a label that no flavor has is left to the scheduler": (
        {"nodeSelector": {"zone": "b"}},
        1,
        Mode.FIT,
        "h100",
    ),
    "a selector is matched literally": ({"nodeSelector": {b.GPU_LABEL: "H100"}}, 1, Mode.NO_FIT, None),
}


@pytest.mark.parametrize(("spec", "gpus", "mode", "flavor"), FLAVOR_CASES.values(), ids=FLAVOR_CASES)
def test_flavors(spec: b.Manifest, gpus: int, mode: Mode, flavor: str | None) -> None:
    found = inventory()
    node = QuotaTree(found.queues.values(), ()).queues["q"]
    template = b.pod_template({b.GPU: gpus, "cpu": 1}, **spec)
    verdict = assign((pod_set(template),), found.queues[QueueName("q")], node, found.flavors, may_preempt=False)
    assert verdict.mode is mode
    if flavor is None:
        assert verdict.assignment is None
        assert verdict.message.startswith("couldn't assign flavors to pod set main: ")
    else:
        assert verdict.assignment is not None
        assert verdict.assignment.flavors == ((("cpu", "cpu"), (b.GPU, flavor)),)


AFFINITY_CASES = {
    "one of several terms is enough": (
        [(b.GPU_LABEL, "In", ["none"]), ("tier", "In", ["spot"])],
        [(b.GPU_LABEL, "In", ["h100"])],
        "h100",
    ),
    "keys that only another flavor has do not count (v0.19)": ([("tier", "In", ["spot"])], None, "h100"),
    "a term of foreign keys only matches every flavor": ([("tier", "In", ["spot"])], [("zone", "In", ["b"])], "h100"),
    "an absent label satisfies NotIn": ([("tier", "NotIn", ["spot"])], None, "h100"),
    "Exists is met by the flavor's own label": ([(b.GPU_LABEL, "Exists", [])], None, "h100"),
}


@pytest.mark.parametrize(("first", "second", "flavor"), AFFINITY_CASES.values(), ids=AFFINITY_CASES)
def test_node_affinity(first: Any, second: Any, flavor: str) -> None:
    terms = [
        {"matchExpressions": [{"key": key, "operator": op, "values": values} for key, op, values in term]}
        for term in (first, second)
        if term is not None
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    template = b.pod_template({b.GPU: 1}, affinity={"nodeAffinity": required}, tolerations=[TOLERATION])
    found = inventory()
    node = QuotaTree(found.queues.values(), ()).queues["q"]
    verdict = assign((pod_set(template),), found.queues[QueueName("q")], node, found.flavors, may_preempt=False)
    assert verdict.assignment is not None
    assert dict(verdict.assignment.flavors[0])[b.GPU] == flavor


def test_pod_sets_see_what_those_before_them_took() -> None:
    found = inventory()
    node = QuotaTree(found.queues.values(), ()).queues["q"]
    sets = (pod_set(b.pod_template({b.GPU: 3})), pod_set(b.pod_template({b.GPU: 3}, tolerations=[TOLERATION])))
    verdict = assign(sets, found.queues[QueueName("q")], node, found.flavors, may_preempt=False)
    assert verdict.assignment is not None
    assert [dict(flavors)[b.GPU] for flavors in verdict.assignment.flavors] == ["h100", "spot"]


def test_a_resource_that_the_queue_does_not_cover_never_fits() -> None:
    found = inventory()
    node = QuotaTree(found.queues.values(), ()).queues["q"]
    verdict = assign(
        (pod_set(b.pod_template({"example.com/fpga": 1})),),
        found.queues[QueueName("q")],
        node,
        found.flavors,
        may_preempt=True,
    )
    assert verdict.mode is Mode.NO_FIT
    assert "example.com/fpga unavailable" in verdict.message


# --- manifests ---------------------------------------------------------------------------------------------------

DURATIONS = {"3s": 3.0, "1m30s": 90.0, "500ms": 0.5, "1h": 3600.0, "": 2.0, "soon": 2.0, "3 s": 2.0}


@pytest.mark.parametrize(("text", "seconds"), DURATIONS.items())
def test_simulated_durations_are_read_as_kwok_reads_them(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize(
    "manifest",
    [
        {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "r"}, "spec": {}},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {}},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": {"template": {}}},
    ],
    ids=["a kind that it does not run", "no pod template", "no name"],
)
def test_a_manifest_that_cannot_be_read_is_refused(manifest: b.Manifest) -> None:
    with pytest.raises(ManifestError):
        job_of(manifest)


def test_a_quota_that_is_no_quantity_is_refused_with_the_queue_s_name() -> None:
    with pytest.raises(ManifestError, match="ClusterQueue q"):
        Inventory([b.cluster_queue("q", b.resource_group({"h100": [b.quota(b.GPU, "many")]}))])
