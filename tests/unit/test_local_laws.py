"""The laws that judge real runs: each has to see the breach that it is there for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.local import laws
from tests.local.laws import Room
from tests.local.observer import HUB, Change, JobSeen, PodSeen, Seen, WorkloadSeen

WAITING = WorkloadSeen("job", "training", "h100", 4, (), "", True, True, False, False, False)
KEY = ("team", "workload")
ROOM = Room({("a", "h100"): 8, ("b", "h100"): 8}, {("a", "h100"): 8, ("b", "h100"): 6}, {})


def to(*clusters: str, **more: object) -> WorkloadSeen:
    return replace(WAITING, nominated=clusters, **more)  # type: ignore[arg-type]


def history(*steps: tuple[str, str, Seen | None]) -> list[Change]:
    """(cluster, name, what is written); kinds follow from what is seen, deletions are of Workloads."""
    kinds: dict[type, str] = {JobSeen: "jobs", PodSeen: "pods"}
    return [
        Change(number, cluster, kinds.get(type(seen), "workloads"), ("team", name), f"{cluster}/{name}", seen)
        for number, (cluster, name, seen) in enumerate(steps)
    ]


PLACED = replace(WAITING, cluster="a", admitted=True)
EVICTED = replace(WAITING, evicted=True)


@pytest.mark.parametrize(
    ("steps", "breaches"),
    [
        ([WAITING, to("a"), to("a", "b"), PLACED], 0),
        ([WAITING, to("a"), EVICTED, WAITING, to("b")], 0),
        ([WAITING, to("a"), replace(WAITING, reserved=False)], 0),
        ([WAITING, to("a"), replace(WAITING, active=False)], 0),
        ([WAITING, to("a"), to("b")], 1),
        ([WAITING, to("a", "b"), to("a")], 1),
        ([WAITING, to("a"), WAITING], 1),
        ([WAITING, to("b"), PLACED], 1),
        ([WAITING, to("a"), PLACED, replace(PLACED, cluster="b")], 1),
    ],
    ids=[
        "adding and latching is right",
        "an eviction ends the attempt",
        "so does the loss of quota",
        "so does a suspension",
        "another cluster instead",
        "one cluster less",
        "none at all without a reason",
        "placed where nobody nominated",
        "moved without an eviction",
    ],
)
def test_a_nomination_only_grows_within_an_attempt(steps: list[WorkloadSeen], breaches: int) -> None:
    found = laws.changed_in_flight(history(*((HUB, "workload", seen) for seen in steps)))
    assert len(found) == breaches, found


def test_two_copies_at_one_instant_are_seen_even_when_one_goes_at_once() -> None:
    one_after_the_other = history(("a", "w", WAITING), ("a", "w", None), ("b", "w", WAITING))
    assert laws.doubled(one_after_the_other) == []
    both = history(("a", "w", WAITING), ("b", "w", WAITING), ("a", "w", None))
    assert laws.doubled(both) == ["workload team/w on a and b"]


def test_runs_are_counted_by_uid_so_that_a_second_pod_of_a_job_is_seen() -> None:
    changes = history(
        (HUB, "w", WAITING),
        ("a", "w", WAITING),
        ("a", "job", JobSeen(1, False)),
        ("a", "job-1", PodSeen("job", "node", "Running")),
        ("a", "job-2", PodSeen("job", "node", "Running")),
    )
    found = laws.runs(changes)
    assert (found.copies, found.jobs, found.pods) == ({("team", "job"): 1}, {("team", "job"): 1}, {("team", "job"): 2})


def crowd(count: int, cluster: str = "a") -> list[tuple[str, str, Seen | None]]:
    return [(HUB, f"w{n}", to(cluster)) for n in range(count)]


@pytest.mark.parametrize(
    ("steps", "ahead", "breaches"),
    [
        (crowd(2), {}, 0),
        (crowd(3), {}, 1),
        (crowd(2, "b"), {}, 1),
        (crowd(3), {"": 1}, 0),
        (crowd(4), {"": 1}, 1),
        ([*crowd(2), (HUB, "w0", replace(WAITING, cluster="a")), (HUB, "w2", to("a"))], {}, 1),
        ([*crowd(2), ("a", "w0", to(finished=True)), (HUB, "w2", to("a"))], {}, 0),
        ([*crowd(2), (HUB, "w0", None), (HUB, "w2", to("a"))], {}, 0),
        ([*crowd(2), ("a", "w0", WAITING), (HUB, "w0", None), (HUB, "w2", to("a"))], {}, 1),
        ([("a", "local", WAITING), *crowd(2)], {}, 1),
    ],
    ids=[
        "what nodes and quota hold",
        "one more",
        "quota below the nodes",
        "within the look-ahead",
        "beyond the look-ahead",
        "what was placed still counts",
        "what finished on the worker does not",
        "what was deleted does not",
        "unless its copy is still there",
        "the worker's own work counts",
    ],
)
def test_no_cluster_is_promised_more_than_fits(
    steps: list[tuple[str, str, Seen | None]], ahead: dict[str, int], breaches: int
) -> None:
    assert len(laws.beyond_fit(history(*steps), ROOM, ahead, {}).breaches) == breaches


def test_a_queue_with_a_borrowing_limit_is_held_to_it() -> None:
    narrow = replace(ROOM, queues={("a", "team", "h100"): 4})
    assert len(laws.beyond_fit(history(*crowd(2)), narrow, {}, {}).breaches) == 1
