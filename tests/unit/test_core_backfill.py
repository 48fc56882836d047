"""A gang that cannot start keeps its earliest start, and only what does not delay it passes: tables."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from dispatcher.core.backfill import (
    Amounts,
    Ask,
    Option,
    Release,
    Reservation,
    Schedule,
    calendar_of,
    expected_end,
    in_the_way,
    passing,
)
from dispatcher.core.decision import Basis
from dispatcher.core.ids import ClusterName, WorkloadUid
from tests.core_builders import NOW

A, B = ClusterName("alpha"), ClusterName("beta")
NODES, QUOTA = ("nodes", "h100"), ("quota", "training")


def at(seconds: int) -> datetime:
    return NOW + timedelta(seconds=seconds)


def ends(seconds: int, gpus: int, basis: Basis = Basis.DECLARED, *, overdue: bool = False) -> Release:
    return Release(at(seconds), {NODES: gpus}, basis, overdue)


def ask(name: str, gpus: int, lasts_s: int = 100, *clusters: ClusterName, cost: int = 0) -> Ask:
    options = tuple(Option(cluster, {NODES: gpus}, lasts_s, cost) for cluster in clusters or (A,))
    return Ask(WorkloadUid(name), name, options)


def schedule(free: int, *releases: Release) -> Schedule:
    return Schedule({A: calendar_of({NODES: free}, releases, NOW)}, NOW)


def reserved(free: int, *releases: Release, gpus: int = 8, lasts_s: int = 100) -> Reservation:
    made = schedule(free, *releases)
    made.reserve(ask("gang", gpus, lasts_s))
    return made.reservations()[0]


@pytest.mark.parametrize(
    ("amounts", "lasts_s", "passes"),
    [
        pytest.param({NODES: 2}, 60, True, id="what ends by then passes, whatever it takes"),
        pytest.param({NODES: 2}, 61, False, id="what ends after it does not"),
        pytest.param({NODES: 1}, 900, True, id="what is left over beside the gang may be taken for any time"),
        pytest.param({("nodes", "l40s"): 99}, 900, True, id="what the gang does not take is not its business"),
        pytest.param({NODES: 0}, 900, True, id="nothing is always left"),
    ],
)
def test_only_what_does_not_delay_the_gang_passes(amounts: Amounts, lasts_s: int, passes: bool) -> None:
    kept = reserved(2, ends(60, 4), ends(30, 3))
    assert (kept.start, kept.end, kept.spare) == (at(60), at(160), {NODES: 1})
    assert (in_the_way((kept,), A, amounts, at(lasts_s)) is None) is passes
    assert in_the_way((kept,), B, amounts, at(lasts_s)) is None, "on another cluster it is in nobody's way"


def test_what_has_passed_is_gone_for_those_after_it() -> None:
    kept = (reserved(2, ends(60, 4), ends(30, 3)),)
    after = passing(kept, A, {NODES: 1}, at(900))
    assert in_the_way(after, A, {NODES: 1}, at(900)) == after[0]
    assert passing(kept, A, {NODES: 1}, at(60)) == kept
    assert passing(kept, B, {NODES: 1}, at(900)) == kept


@pytest.mark.parametrize(
    ("kept", "basis", "overdue"),
    [
        pytest.param(reserved(0, ends(10, 8)), Basis.DECLARED, False, id="an end that its owner declared"),
        pytest.param(
            reserved(0, ends(10, 4, Basis.HISTORY), ends(20, 4)), Basis.HISTORY, False, id="the weakest of two sources"
        ),
        pytest.param(
            reserved(0, ends(10, 8), ends(20, 4, Basis.CLASS_DEFAULT)), Basis.DECLARED, False, id="no end after it"
        ),
        pytest.param(reserved(0, ends(10, 8, overdue=True)), Basis.DECLARED, True, id="an end that is overdue"),
    ],
)
def test_a_reservation_names_the_weakest_estimate_that_it_depends_on(
    kept: Reservation, basis: Basis, overdue: bool
) -> None:
    assert (kept.start, kept.basis, kept.overdue) == (at(20 if basis is Basis.HISTORY else 10), basis, overdue)


def test_a_gang_for_which_nothing_ends_has_no_start() -> None:
    assert schedule(4, ends(10, 3)).reserve(ask("gang", 8)) is None


def test_a_gang_needs_its_room_for_as_long_as_it_runs() -> None:
    """Between two reservations there is a gap; what is too long for it goes behind both."""
    made = schedule(0, ends(10, 8))
    assert made.reserve(ask("first", 8, 100)) == at(10)
    assert made.reserve(ask("second", 8, 100)) == at(110)
    made.calendars[A] = made.calendars[A].with_taken({NODES: -8}, at(1), at(10))
    assert made.reserve(ask("long", 8, 10)) == at(210)
    assert made.reserve(ask("short", 8, 9)) == at(1)


def test_who_waits_although_it_seems_to_fit_waits_for_something_else() -> None:
    """Then the numbers lack what is in its way, and it keeps nobody back."""
    made = schedule(8, ends(10, 8))
    assert made.reserve(ask("gang", 8)) is None
    assert made.reservations() == ()


def test_all_pools_must_be_free_at_the_same_time() -> None:
    calendar = calendar_of(
        {NODES: 8, QUOTA: 0},
        [Release(at(5), {QUOTA: 4}, Basis.DECLARED), Release(at(9), {QUOTA: 4}, Basis.DECLARED)],
        NOW,
    )
    assert calendar.earliest({NODES: 8, QUOTA: 8}, 10) == at(9)
    assert calendar.earliest({NODES: 8, QUOTA: 8, ("nodes", "none"): 1}, 10) is None


def test_it_reserves_where_it_starts_first_then_where_it_costs_less() -> None:
    gang = Ask(
        WorkloadUid("gang"), "gang", (Option(A, {NODES: 8}, 100, cost_usd_micro=9), Option(B, {NODES: 8}, 100, 1))
    )
    for b_ends, where in ((40, A), (20, B), (10, B)):
        calendars = {
            A: calendar_of({NODES: 0}, [ends(20, 8)], NOW),
            B: calendar_of({NODES: 0}, [ends(b_ends, 8)], NOW),
        }
        made = Schedule(calendars, NOW)
        made.reserve(gang)
        assert made.reservations()[0].cluster == where


@pytest.mark.parametrize(
    ("b_starts", "where"),
    [
        pytest.param(990, A, id="it stays where it has reserved for a little"),
        pytest.param(915, A, id="and for less than a tenth of the time"),
        pytest.param(905, B, id="and goes where it starts a good deal earlier"),
    ],
)
def test_a_gang_does_not_move_its_reservation_for_a_little(b_starts: int, where: ClusterName) -> None:
    calendars = {
        A: calendar_of({NODES: 0}, [ends(1000, 8)], NOW),
        B: calendar_of({NODES: 0}, [ends(b_starts, 8)], NOW),
    }
    made = Schedule(calendars, NOW, {WorkloadUid("gang"): A})
    made.reserve(ask("gang", 8, 100, A, B))
    assert made.reservations()[0].cluster == where


@pytest.mark.parametrize(
    ("elapsed_s", "end_s", "overdue"),
    [
        pytest.param(0, 400, False, id="what has just begun ends after its time"),
        pytest.param(399, 400, False, id="until the last second"),
        pytest.param(400, 500, True, id="overdue work is given a quarter more"),
        pytest.param(499, 500, True, id="which stands while it lasts"),
        pytest.param(500, 625, True, id="and then a quarter of all that"),
    ],
)
def test_the_end_of_what_runs_is_expected_ahead(elapsed_s: int, end_s: int, overdue: bool) -> None:
    begun = at(-elapsed_s)
    assert expected_end(begun, 400, NOW) == (begun + timedelta(seconds=end_s), overdue)


def test_a_run_of_no_length_still_ends_ahead() -> None:
    assert expected_end(NOW, 0, NOW) == (at(1), False)
    assert expected_end(at(-86_400 * 365), 0, NOW)[0] > NOW
