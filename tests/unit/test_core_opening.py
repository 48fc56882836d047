"""Waiting for a better place that is full: when it is worth what waiting costs, and how it is told."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from dispatcher.core.backfill import Opening
from dispatcher.core.decide import decide
from dispatcher.core.decision import Basis, Decision, Fit, Outcome, Reason
from dispatcher.core.explain import sentence
from dispatcher.core.ids import ClusterName
from dispatcher.core.policy import Policy
from dispatcher.core.replay import Inputs, replay
from dispatcher.core.snapshot import Snapshot
from dispatcher.core.traffic import Traffic
from dispatcher.core.workload import WorkloadClass
from tests.core_builders import NOW, USD, compute, node, pods, policy, queue, quota, request, seen, site, worker

NAMES = (ClusterName("cloud"), ClusterName("onprem"))
HOUR = 3600
# Eight GPUs for ten hours: 80 USD on our own machines, which are full, and 240 in the cloud, which is free. An hour of
# waiting costs 6.
BOOK = policy([site(name, "DE") for name in NAMES], [compute("onprem", USD), compute("cloud", 3 * USD)])
FLEET = Snapshot(
    tuple(
        seen(worker(name, (node("a", used=8 if name == "onprem" else 0),), [queue(quotas=quota(8, used=used))]))
        for name, used in zip(NAMES, (0, 8), strict=True)
    )
)


def opens(in_s: int, cluster: str = "onprem", **over: object) -> Opening:
    found = Opening(ClusterName(cluster), NOW + timedelta(seconds=in_s), Basis.DECLARED)
    return replace(found, **over)  # type: ignore[arg-type]


def decided(*openings: Opening, waited_s: int = 0, book: Policy = BOOK, look_ahead: int = 0) -> Decision:
    asked = request("late", pods(1, 8), expected_duration_s=10 * HOUR)
    asked = replace(asked, listed_clusters=NAMES, waiting_since=NOW - timedelta(seconds=waited_s))
    plan = replace(book.classes[WorkloadClass.TRAINING], look_ahead=look_ahead)
    book = replace(book, classes={**book.classes, WorkloadClass.TRAINING: plan})
    inputs = Inputs(asked, FLEET.amid(Traffic(openings=openings)), book, NOW)
    found = decide(asked, inputs.snapshot, book, NOW)
    assert replay(inputs) == found
    return found


def holding_out(hours: int) -> Policy:
    return replace(BOOK, order=replace(BOOK.order, hold_out_s=hours * HOUR))


@pytest.mark.parametrize(
    ("openings", "more", "chosen"),
    [
        pytest.param((), {}, "cloud", id="of which nothing is known is not waited for"),
        pytest.param((opens(HOUR),), {}, None, id="an hour of waiting costs less than the cloud"),
        pytest.param((opens(23 * HOUR),), {}, None, id="so do 23 hours"),
        pytest.param((opens(26 * HOUR),), {"book": holding_out(99)}, None, id="and 26, where the plan lets them"),
        pytest.param((opens(27 * HOUR),), {"book": holding_out(99)}, "cloud", id="but not 27"),
        pytest.param(
            (opens(HOUR),),
            {"book": holding_out(99), "waited_s": 26 * HOUR},
            "cloud",
            id="what was waited before counts as well, so it ends",
        ),
        pytest.param((opens(25 * HOUR),), {}, "cloud", id="the plan says for how long at most"),
        pytest.param((opens(HOUR),), {"book": holding_out(0)}, "cloud", id="with 0 nobody waits by choice"),
        pytest.param((opens(HOUR, "elsewhere"),), {}, "cloud", id="an opening where it may not go is none"),
        pytest.param((opens(HOUR),), {"look_ahead": 1}, "onprem", id="who may look ahead does so there"),
    ],
)
def test_a_full_cluster_is_waited_for_while_that_is_cheaper(
    openings: tuple[Opening, ...], more: dict[str, object], chosen: str | None
) -> None:
    assert decided(*openings, **more).chosen == chosen  # type: ignore[arg-type]


def test_who_waits_by_choice_is_told_for_what_and_until_when() -> None:
    found = decided(opens(HOUR), opens(2 * HOUR))
    free = next(c for c in found.candidates if c.cluster == "cloud")
    assert (found.outcome, free.fit, [r.reason for r in free.rejections]) == (
        Outcome.WAIT,
        Fit.NOW,
        [Reason.WORTH_WAITING],
    )
    told = sentence(found)
    assert "waits: a full one is worth waiting for: cloud costs $240.00: onprem costs $86.00 with the wait" in told
    assert "expected to have room at 2027-02-01 11:00:00 UTC (by what owners declare; wait)" in told


@pytest.mark.parametrize("known", ["a", "b"])
def test_where_nothing_is_free_a_look_ahead_goes_to_the_opening_that_is_known(known: str) -> None:
    """Of two full clusters that cost the same, however the tie between them falls."""
    names = tuple(map(ClusterName, ("a", "b")))
    book = policy([site(name, "DE") for name in names], [compute(name, USD) for name in names])
    plan = replace(book.classes[WorkloadClass.TRAINING], look_ahead=1)
    book = replace(book, classes={**book.classes, WorkloadClass.TRAINING: plan})
    full = Snapshot(
        tuple(seen(worker(name, (node("n", used=8),), [queue(quotas=quota(8, used=8))])) for name in names),
        traffic=Traffic(openings=(opens(HOUR, known),)),
    )
    asked = replace(request("late", pods(1, 8), expected_duration_s=10 * HOUR), listed_clusters=names)
    assert decide(asked, full, book, NOW).chosen == known
