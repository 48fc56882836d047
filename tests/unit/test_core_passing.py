"""A decision behind a reservation: the cluster that it would delay is closed, with whom it would delay and why."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from dispatcher.core.backfill import Reservation, Schedule
from dispatcher.core.decide import decide
from dispatcher.core.decision import Basis, Decision, Estimate, Outcome, Reason
from dispatcher.core.explain import sentence
from dispatcher.core.ids import ClusterName, FlavorName, QueueName, WorkloadUid
from dispatcher.core.index import index_view
from dispatcher.core.keeping import MOST_STEPS, Part, Taker, calendar, free_of, grounds_of
from dispatcher.core.replay import Inputs, replay
from dispatcher.core.snapshot import Snapshot
from dispatcher.core.traffic import EMPTY, Traffic
from tests.core_builders import (
    FLAVOR,
    GPU,
    NOW,
    QUEUE,
    USD,
    compute,
    node,
    pods,
    policy,
    queue,
    quota,
    request,
    seen,
    site,
    worker,
)

NAMES = (ClusterName("cloud"), ClusterName("onprem"))
NODES, SHARED = ("nodes", FLAVOR, GPU, "8"), ("quota", QUEUE, FLAVOR, GPU)
HOUR = 3600
BOOK = policy([site(name, "DE") for name in NAMES], [compute("onprem", USD), compute("cloud", 2 * USD)])
FLEET = Snapshot(
    tuple(
        seen(worker(name, (node("a"), node("b", used=8)), [queue(quotas=quota(16, used=8))])) for name in sorted(NAMES)
    )
)


def kept(cluster: str, spare: int, quota: int = 16, **over: object) -> Reservation:
    """From in an hour; `spare` GPUs are left over beside it, and `quota` of them in its queue."""
    start = NOW + timedelta(hours=1)
    found = Reservation(
        ClusterName(cluster),
        WorkloadUid("uid-gang"),
        "team/gang",
        start,
        start + timedelta(hours=1),
        {NODES: spare, SHARED: quota},
        Basis.DECLARED,
        queue=QUEUE,
        sharers=(QUEUE,),
    )
    return replace(found, **over)  # type: ignore[arg-type]


def decided(*reserved: Reservation, gpus: int = 2, lasts_s: int = 2 * HOUR) -> Decision:
    asked = replace(request("late", pods(1, gpus), expected_duration_s=lasts_s), listed_clusters=NAMES)
    inputs = Inputs(asked, FLEET.amid(Traffic(reserved=reserved) if reserved else EMPTY), BOOK, NOW)
    found = decide(asked, inputs.snapshot, BOOK, NOW)
    assert replay(inputs) == found
    return found


@pytest.mark.parametrize(
    ("reserved", "more", "chosen"),
    [
        pytest.param((), {}, "onprem", id="with nothing reserved the cheapest cluster is taken"),
        pytest.param((kept("onprem", 0),), {}, "cloud", id="a reservation on it closes it, and another is taken"),
        pytest.param((kept("onprem", 0),), {"lasts_s": HOUR}, "onprem", id="what ends by the start may pass"),
        pytest.param((kept("onprem", 8),), {}, "onprem", id="so may what a whole node can be spared for"),
        pytest.param((kept("onprem", 7),), {}, "cloud", id="two GPUs break a node, and a pod of the gang needs one"),
        pytest.param((kept("onprem", 8, quota=1),), {}, "cloud", id="quota must be left over as well"),
        pytest.param(
            (kept("onprem", 8, quota=1, sharers=(QueueName("other"),)),),
            {},
            "onprem",
            id="but the quota of others is not ours",
        ),
        pytest.param((kept("onprem", 0), kept("cloud", 0)), {}, None, id="with all closed it waits"),
    ],
)
def test_a_reservation_closes_a_cluster_only_to_what_delays_it(
    reserved: tuple[Reservation, ...], more: dict[str, int], chosen: str | None
) -> None:
    assert decided(*reserved, **more).chosen == chosen


def test_what_is_in_nobodys_way_is_no_part_of_the_record() -> None:
    assert decided(kept("onprem", 8)) == decided()


@pytest.mark.parametrize(
    ("reservation", "stands_on"),
    [
        (kept("onprem", 0), "by what owners declare"),
        (kept("onprem", 0, basis=Basis.CLASS_DEFAULT), "by class defaults"),
        (kept("onprem", 0, overdue=True), "what runs there is overdue"),
    ],
    ids=["declared", "class-default", "overdue"],
)
def test_who_waits_behind_a_reservation_is_told_all_of_it(reservation: Reservation, stands_on: str) -> None:
    found = decided(reservation, kept("cloud", 0))
    assert found.outcome is Outcome.WAIT
    rejection = next(c for c in found.candidates if c.cluster == "onprem").rejections[0]
    assert (rejection.reason, rejection.detail.holder, rejection.detail.needed) == (Reason.RESERVED, "team/gang", 8)
    told = sentence(replace(found, candidates=tuple(c for c in found.candidates if c.cluster == "onprem")))
    assert stands_on in told
    assert "kept free for team/gang, which is to start there at 2027-02-01 11:00:00 UTC" in told
    assert "would run until 2027-02-01 12:00:00 UTC" in told


# --- what a cluster has, and when ---------------------------------------------------------------------------------


def runs(gpus: int, ends_s: int, known: bool = True) -> Taker:
    part = Part(FlavorName(FLAVOR), GPU, 1, gpus)
    return Taker(QUEUE, (part,), NOW, Estimate(ends_s, Basis.DECLARED) if known else None)


def starts(*takers: Taker, pods_of_eight: int = 2) -> datetime | None:
    index = index_view(worker("onprem", (node("a"), node("b", used=8)), [queue(quotas=quota(16, used=8))]))
    wanted = (Part(FlavorName(FLAVOR), GPU, pods_of_eight, 8, pods_of_eight),)
    grounds = grounds_of([(QUEUE, wanted)], index)
    return calendar(grounds, free_of(grounds, index, ()), takers, NOW).earliest(grounds.taken(QUEUE, wanted), HOUR)


@pytest.mark.parametrize(
    ("takers", "after_s"),
    [
        pytest.param((runs(8, 50),), 50, id="a gang starts when the node that it lacks is given back"),
        pytest.param((runs(4, 50), runs(4, 90)), 90, id="with all of it"),
        pytest.param((runs(8, 50, known=False),), None, id="of what no end is known nothing comes back"),
        pytest.param((), None, id="nor where nothing runs that we see"),
    ],
)
def test_the_start_of_a_gang_comes_from_the_ends_of_what_runs(takers: tuple[Taker, ...], after_s: int | None) -> None:
    assert starts(*takers) == (NOW + timedelta(seconds=after_s) if after_s is not None else None)


def test_pieces_of_nodes_are_no_room_for_pods_of_a_whole_one() -> None:
    index = index_view(worker("onprem", (node("a", used=4), node("b", used=4)), [queue(quotas=quota(16, used=8))]))
    wanted = (Part(FlavorName(FLAVOR), GPU, 1, 8, 1),)
    grounds = grounds_of([(QUEUE, wanted)], index)
    assert calendar(grounds, free_of(grounds, index, ()), (), NOW).free[0] == {NODES: 0, SHARED: 8}


def test_very_many_ends_are_taken_together_and_never_too_early() -> None:
    takers = [runs(1, 10 + at) for at in range(40 * MOST_STEPS)]
    index = index_view(worker("onprem", (node("a", used=8),), [queue(quotas=quota(8, used=8))]))
    wanted = (Part(FlavorName(FLAVOR), GPU, 1, 8, 1),)
    grounds = grounds_of([(QUEUE, wanted)], index)
    found = calendar(grounds, free_of(grounds, index, ()), takers, NOW)
    assert len(found.times) == MOST_STEPS + 1
    for at, free in zip(found.times, found.free, strict=True):
        ended = sum(NOW + timedelta(seconds=taker.estimate.duration_s) <= at for taker in takers if taker.estimate)
        assert free[NODES] <= ended


def test_a_schedule_reserves_nothing_for_nobody() -> None:
    assert Schedule({}, NOW).reservations() == ()
