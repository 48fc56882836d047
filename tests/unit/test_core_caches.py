"""What lies in a cluster's cache by the decisions that sent work there, and what reading it then costs (ADR 25)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from dispatcher.core.caches import Bringing, Visit, contents, in_order, looked_at, visit_of
from dispatcher.core.decision import Decision, Term, TermKind
from dispatcher.core.ids import ClusterName, DataSetName, DecisionId, WorkloadUid
from dispatcher.core.policy import Policy
from dispatcher.core.snapshot import Cached
from dispatcher.core.workload import HubWorkload
from tests.core_builders import GB, NOW, USD, data, decided, egress, on, pods, policy, request, seen, site, store, uses
from tests.core_builders import worker as worker_view
from tests.unit.test_waiting import hub, workload

TB = 1000 * GB
HERE = ClusterName("a")
HOUR = 3600


def visit(number: int, *sets: tuple[str, int], state: Bringing = Bringing.THERE, takes_s: int | None = HOUR) -> Visit:
    """The `number`th decision, an hour after the one before."""
    at = NOW + timedelta(hours=number)
    return Visit(
        decision=DecisionId(f"d{number}"),
        workload=WorkloadUid(f"w{number}"),
        key=f"team/job-{number}",
        cluster=HERE,
        attempt=1,
        at=at,
        sets=tuple((DataSetName(name), size) for name, size in sets),
        brings=frozenset(DataSetName(name) for name, _ in sets) if takes_s is not None else frozenset(),
        transfer_s=takes_s or 0,
        there_at=at + timedelta(seconds=takes_s) if takes_s is not None else None,
        state=state,
    )


def told(*visits: Visit, room: int = 100) -> dict[str, tuple[str, bool]]:
    """Data sets of a cache of 100 bytes, each with who brought it and whether it is there."""
    return {found.data_set: (found.key[-1], found.there) for found in contents(in_order(visits), room)}


CONTENTS = {
    "nothing was read: nothing is there": ((), {}),
    "what one brought is there": ((visit(1, ("a", 60)),), {"a": ("1", True)}),
    "what one brings is on its way": ((visit(1, ("a", 60), state=Bringing.ON_ITS_WAY),), {"a": ("1", False)}),
    "two that fit lie side by side": ((visit(1, ("a", 60)), visit(2, ("b", 40))), {"a": ("1", True), "b": ("2", True)}),
    "when it is full, the longest unused goes": (
        (visit(1, ("a", 60)), visit(2, ("b", 40)), visit(3, ("c", 20))),
        {"b": ("2", True), "c": ("3", True)},
    ),
    "what was used again stays, and what was not goes": (
        (visit(1, ("a", 60)), visit(2, ("b", 40)), visit(3, ("a", 60)), visit(4, ("c", 20))),
        {"a": ("1", True), "c": ("4", True)},
    ),
    "the first who brought it counts, not who used it since": (
        (visit(1, ("a", 60)), visit(2, ("a", 60), state=Bringing.ON_ITS_WAY)),
        {"a": ("1", True)},
    ),
    "an attempt that ended too early brought nothing": ((visit(1, ("a", 60), state=Bringing.ENDED),), {}),
    "then whoever shared it brings it": (
        (visit(1, ("a", 60), state=Bringing.ENDED), visit(2, ("a", 60), state=Bringing.ON_ITS_WAY)),
        {"a": ("2", False)},
    ),
    "and it took room all the same: how much had come, nobody knows": (
        (visit(1, ("a", 60)), visit(2, ("b", 60), state=Bringing.ENDED)),
        {},
    ),
    "what went and comes again is on its way anew": (
        (visit(1, ("a", 60)), visit(2, ("b", 60)), visit(3, ("a", 60), state=Bringing.ON_ITS_WAY)),
        {"a": ("3", False)},
    ),
    "a set that does not fit was never there": ((visit(1, ("a", 60)), visit(2, ("b", 101))), {"a": ("1", True)}),
    "how long it takes is not known: nobody counts on it": ((visit(1, ("a", 60), takes_s=None),), {}),
    "a set of another size has other content": (
        (visit(1, ("a", 60)), visit(2, ("a", 61), state=Bringing.ON_ITS_WAY)),
        {"a": ("2", False)},
    ),
}


@pytest.mark.parametrize(("visits", "there"), CONTENTS.values(), ids=CONTENTS.keys())
def test_a_cache_holds_what_was_brought_and_forgets_the_longest_unused(
    visits: tuple[Visit, ...], there: dict[str, tuple[str, bool]]
) -> None:
    assert told(*visits) == there


def test_the_order_in_which_decisions_are_read_changes_nothing() -> None:
    visits = [visit(n, (name, 40)) for n, name in enumerate("abcabd")]
    assert contents(in_order(reversed(visits)), 100) == contents(in_order(visits), 100)


# --- what becomes of what is on its way --------------------------------------------------------------------------

SENT = visit(0, ("a", 60), state=Bringing.ON_ITS_WAY)
SENT = replace(SENT, workload=WorkloadUid("w1"))
DUE = SENT.at + timedelta(hours=1)
PLACED = {"cluster_name": HERE}


def after(hours: float) -> datetime:
    return SENT.at + timedelta(hours=hours)


LOOKS = {
    "nominated there: on its way": ({"nominated": (HERE,)}, 0.5, False, Bringing.ON_ITS_WAY),
    "nominated there for longer than the transfer takes: it has not begun": (
        {"nominated": (HERE,)},
        2,
        False,
        Bringing.ON_ITS_WAY,
    ),
    "placed there: on its way": (PLACED, 0.5, False, Bringing.ON_ITS_WAY),
    "placed there until it is due: there": (PLACED, 1, False, Bringing.THERE),
    "placed elsewhere: ended": ({"cluster_name": ClusterName("b")}, 0.5, False, Bringing.ENDED),
    "waits again: ended": ({}, 0.5, True, Bringing.ENDED),
    "evicted before it is due: ended": (PLACED | {"evicted_at": after(0.9)}, 2, True, Bringing.ENDED),
    "evicted after it is due: there": (PLACED | {"evicted_at": after(1.1)}, 2, True, Bringing.THERE),
    "evicted, and never seen there: ended": ({"evicted_at": after(1.1)}, 2, False, Bringing.ENDED),
    "finished after it is due: there": (PLACED | {"finished": True, "finished_at": after(1)}, 2, False, Bringing.THERE),
    "finished before: ended": (PLACED | {"finished": True, "finished_at": after(0.9)}, 2, True, Bringing.ENDED),
    "finished nobody knows when: ended": (PLACED | {"finished": True}, 2, True, Bringing.ENDED),
    "gone from the hub: ended nobody knows when": (None, 2, True, Bringing.ENDED),
}


@pytest.mark.parametrize(("how", "hours", "was_seen", "state"), LOOKS.values(), ids=LOOKS.keys())
def test_what_becomes_of_it_is_read_from_the_hub(
    how: dict[str, object] | None, hours: float, was_seen: bool, state: Bringing
) -> None:
    found: HubWorkload | None = workload(**how) if how is not None else None
    looked = looked_at(replace(SENT, placed=was_seen), found, hub(*([found] if found else [])), after(hours))
    assert looked.state is state


def test_work_that_is_placed_late_brings_its_data_late() -> None:
    late = after(3)
    check = replace(workload().checks[0], state="Ready", changed_at=late)
    found = workload(cluster_name=HERE, checks=(check,))
    looked = looked_at(SENT, found, hub(found), late)
    assert (looked.there_at, looked.state) == (after(4), Bringing.ON_ITS_WAY)


def test_what_is_settled_is_not_looked_at_again() -> None:
    there = replace(SENT, state=Bringing.THERE)
    assert looked_at(there, None, hub(), after(9)) is there


# --- what reading costs then -------------------------------------------------------------------------------------

WIDE = egress("r-far", "r-onprem", 50_000, bandwidth=100_000)


def rules(size: int | None = 30 * TB, cache: int = 40 * TB, **over: object) -> Policy:
    found = policy(
        [site("onprem")],
        data_sets=[replace(data("d", 30 * TB, stores=["far"]), size_bytes=size, **over)],  # type: ignore[arg-type]
        egress_prices=[WIDE],
        stores=[store("far", region="r-far")],
    )
    sites = {name: replace(each, cache_bytes=cache) for name, each in found.clusters.items()}
    return replace(found, clusters=sites)


def cached(there: bool = True, size: int = 30 * TB, takes_s: int = 2400) -> Cached:
    end = NOW + timedelta(seconds=takes_s)
    return Cached(DataSetName("d"), size, "team/first", DecisionId("d-first"), NOW, end, there)


def reading(known: Cached | None, book: Policy | None = None) -> Decision:
    view = seen(worker_view(), cached=(known,) if known is not None else ())
    return decided(request("second", pods(1, 1), data=uses(("d", 3))), view, rules=book or rules())


def term(decision: Decision, kind: TermKind) -> Term:
    return next(t for t in on(decision, "onprem").terms if t.kind is kind)


def amounts(decision: Decision) -> tuple[int | None, int | None]:
    return term(decision, TermKind.DATA_IN).amount_usd_micro, term(decision, TermKind.WAITING).amount_usd_micro


COSTS = {
    "nothing is known: its way and the wait": (None, rules(), (1500 * USD, 4 * USD)),
    "on its way: the wait": (cached(there=False), rules(), (0, 4 * USD)),
    "there: nothing": (cached(), rules(), (0, 0)),
    "of another size: other content": (cached(size=29 * TB), rules(), (1500 * USD, 4 * USD)),
    "without a cache nothing is shared": (cached(), rules(cache=0), (4500 * USD, 12 * USD)),
    "on its way for longer than bringing it is worth: brought again": (
        cached(there=False, takes_s=10**7),
        rules(),
        (1500 * USD, 4 * USD),
    ),
    "a replica that the cluster is declared to hold goes before it": (
        cached(there=False),
        rules(replica_clusters=("onprem",)),
        (0, 0),
    ),
}


@pytest.mark.parametrize(("known", "book", "costs"), COSTS.values(), ids=COSTS.keys())
def test_what_is_in_the_cache_is_not_paid_again(known: Cached | None, book: Policy, costs: tuple[int, int]) -> None:
    assert amounts(reading(known, book)) == costs


def test_a_set_whose_replicas_are_all_missing_is_not_taken_from_a_cache() -> None:
    """A look at the stores goes before what is remembered (core/replicas.py)."""
    assert amounts(reading(cached(), rules(replica_stores=())))[0] is None


def test_a_bill_says_since_when_or_until_when() -> None:
    assert term(reading(cached()), TermKind.DATA_IN).bill[0].what == "d, in the cache since 2027-02-01T10:40:00Z"
    coming = term(reading(cached(there=False)), TermKind.DATA_IN).bill[0].what
    assert coming == "d, on its way for team/first until 2027-02-01T10:40:00Z"


def test_whoever_shares_a_set_tells_how_long_it_would_take_it_alone() -> None:
    """Should the attempt that brings it end, this one does."""
    for known in (None, cached(), cached(there=False)):
        made = reading(known)
        (coming,) = term(made, TermKind.DATA_IN).incoming
        assert (coming.data_set, coming.transfer_s, coming.size_bytes) == ("d", 2400, 30 * TB)
        found = visit_of(made)
        assert found is not None
        assert found.there_at == NOW + timedelta(seconds=2400)


def test_a_set_that_comes_from_a_store_of_the_region_takes_room_and_nobody_counts_on_it() -> None:
    near = replace(rules(replica_stores=("near",)), stores={"near": store("near", region="r-onprem")})  # type: ignore[dict-item]
    made = reading(None, near)
    found = visit_of(made)
    assert found is not None
    assert (found.sets, found.there_at) == ((("d", 30 * TB),), None)


def test_a_decision_that_waits_or_reads_past_the_cache_leaves_it_alone() -> None:
    assert visit_of(reading(None, rules(cache=0))) is None
    assert visit_of(reading(None, rules(size=None))) is None
