"""The law of the memo: whatever came before, a decision with it is the decision without it, byte for byte.

Each step of a run changes one thing that a candidate may depend on, or several: views, links, hub objects, promises,
policy, the clock, and every field of the request. What the memo forgot to depend on shows as two records that differ.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core import memo as memo_module
from dispatcher.core.decide import decide, hold_of
from dispatcher.core.decision import Decision
from dispatcher.core.legality import ruling_on
from dispatcher.core.memo import CandidateMemo
from dispatcher.core.policy import Limits, Measured, Policy, PriceUnit, RoundTrip
from dispatcher.core.snapshot import Cached, ClusterSnapshot, Hold, Link, MultiKueueClusterView, Snapshot, WorkerView
from dispatcher.core.workload import Avoided, DataUse, Destination, PodSet, Request
from tests.core_builders import (
    GB,
    NOW,
    TODAY,
    USD,
    LabelRule,
    compute,
    copy,
    data,
    egress,
    flavor_policy,
    hold,
    node,
    pods,
    policy,
    queue,
    quota,
    request,
    rule,
    site,
    store,
    worker,
)
from tests.examples import examples

NAMES = ("cloud", "onprem", "x")
runs = examples(120)


def some(draw: st.DrawFn, *values: Any) -> Any:
    return draw(st.sampled_from(values))


@st.composite
def views(draw: st.DrawFn, name: str) -> WorkerView:
    used = draw(st.lists(st.integers(0, 9), min_size=1, max_size=4))
    nodes = tuple(
        node(f"n{at}", used=u, ready=draw(st.booleans()) or at == 0, schedulable=some(draw, True, True, False))
        for at, u in enumerate(used)
    )
    reserved = draw(st.integers(0, 4))
    copies = [copy("old", 1, reserved, priority=draw(st.integers(0, 2)), bound=draw(st.integers(0, 4)))]
    if draw(st.booleans()):
        copies.append(copy(some(draw, "g0", "g1"), 1, 1, ours=draw(st.booleans())))
    found = worker(
        name,
        nodes,
        [queue(quotas=quota(8 * len(used), used=reserved), preempts_lower_priority=draw(st.booleans()))],
        copies=copies,
    )
    age = timedelta(seconds=draw(st.integers(0, 3)))
    return replace(found, observed_at=NOW - age, generation=draw(st.integers(0, 3)), error=some(draw, None, "away"))


@st.composite
def clusters(draw: st.DrawFn, name: str) -> ClusterSnapshot:
    view = draw(views(name)) if draw(st.integers(0, 5)) else None
    link = some(draw, Link.CONNECTED, Link.CONNECTED, Link.STALE) if view is not None else Link.BLIND
    hub = MultiKueueClusterView(name, active=some(draw, True, True, False), reason=some(draw, "", "why"))  # type: ignore[arg-type]
    coming = Cached("d", 100 * GB, "team/g9", "d-9", NOW, NOW + timedelta(hours=1), there=False)  # type: ignore[arg-type]
    cached = some(draw, (), (coming,), (replace(coming, there=True),))
    return ClusterSnapshot(name, link, some(draw, hub, hub, None), view, cached)  # type: ignore[arg-type]


@st.composite
def nudges(draw: st.DrawFn, found: ClusterSnapshot) -> ClusterSnapshot:
    """The cluster with one thing of its view another, whether a candidate reads it or not."""
    view = found.worker
    if view is None:
        return found
    what = some(draw, "queue", "queue", "copy", "copy", "copy", "gone", "node")
    if what == "queue":
        name, known = next(iter(view.queues.items()))
        change = some(draw, {"pending": draw(st.integers(0, 3))}, {"active": not known.active}, {"reclaims_any": True})
        view = replace(view, queues={**view.queues, name: replace(known, **change)})
    elif what == "node":
        first, *others = view.nodes
        view = replace(view, nodes=(replace(first, ready=not first.ready), *others))
    elif view.copies:
        key = draw(st.sampled_from(sorted(view.copies)))
        copies = dict(view.copies)
        if what == "gone":
            del copies[key]
        else:
            at = NOW - timedelta(seconds=draw(st.integers(0, 2)))
            field = some(
                draw, "quota_reserved_at", "admitted_at", "evicted_at", "quota_message", "priority", "finished"
            )
            values = {"quota_message": ("", "why"), "priority": (0, 3), "finished": (False, True)}
            copies[key] = replace(copies[key], **{field: some(draw, *values.get(field, (None, at)))})
        view = replace(view, copies=copies)
    return replace(found, worker=view)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    flavors = [replace(flavor_policy(), failure_s=some(draw, None, 86_400), watts=some(draw, None, 700))]
    facts = {"cache_bytes": some(draw, 0, 200 * GB), "energy_permille": some(draw, None, 1200)}
    sites = [replace(site(name, some(draw, "DE", "US"), flavors), **facts) for name in NAMES[: draw(st.integers(2, 3))]]
    prices = [compute(name, draw(st.integers(1, 3)) * USD) for name in NAMES]
    prices += [compute(name, USD // 100, "cpu", PriceUnit.VCPU_HOUR) for name in NAMES]
    book = policy(
        sites,
        prices,
        [
            *(egress(f"r-{a}", f"r-{b}", draw(st.integers(0, 2)), 1000) for a in NAMES for b in NAMES if a != b),
            *(egress(f"r-{a}", "r-s", USD, some(draw, None, 1000)) for a in NAMES),
            *(egress("r-s", f"r-{a}", USD, 1000) for a in NAMES),
        ],
        [data("d", 100 * GB, some(draw, ("a",), ()), [some(draw, *NAMES)])],
        [_rule(draw)],
        stores=[store("s", region="r-s")],
        limits=Limits(stranded_permille=some(draw, 0, 100), reclaim_s=some(draw, None, 3600)),
    )
    trips = {("r-cloud", "r-s"): RoundTrip(some(draw, 5, 50), "measured", TODAY)}
    brief = {kind: replace(p, round_trip_price_usd_micro=some(draw, None, 900)) for kind, p in book.classes.items()}
    measured = some(draw, {}, {("r-s", f"r-{NAMES[0]}"): Measured(300, NOW)})
    prices = replace(book.prices, max_age_days=some(draw, 30, 3650), measured=measured, measured_max_age_s=60)
    return replace(book, prices=prices, digest=some(draw, "p1", "p2"), round_trips=trips, classes=brief)


def _rule(draw: st.DrawFn) -> LabelRule:
    return some(draw, rule("a", anywhere=True), rule("a", "DE"), rule("a"))  # type: ignore[no-any-return]


@st.composite
def requests(draw: st.DrawFn, book: Policy, now: datetime) -> Request:
    """Few values for every field, so that shapes repeat, and each field is at times the only one that differs."""
    number = draw(st.integers(0, 2))
    sets: tuple[PodSet, ...] = (pods(draw(st.integers(1, 2)), some(draw, 0, 2, 8), name="main"),)
    asked = request(f"g{number}", *sets, priority=draw(st.integers(0, 1)))
    declared = replace(
        asked.declared,
        team=some(draw, "a", "b"),
        workload_class=some(draw, asked.declared.workload_class, *list(book.classes)[:1]),
        data=some(draw, (), (DataUse("d", 1),), (DataUse("d", 2),)),  # type: ignore[arg-type]
        outputs=some(draw, None, Destination("s", f"run-{number}")),  # type: ignore[arg-type]
        outputs_bytes=some(draw, None, GB),
        checkpoint=some(draw, None, Destination("s", f"saves-{number}")),  # type: ignore[arg-type]
        checkpoint_bytes=some(draw, None, GB, 2 * GB),
        checkpoint_interval_s=some(draw, None, 600),
        expected_duration_s=some(draw, None, 60, 7200),
        deadline=some(draw, None, NOW),
        clusters=some(draw, None, None, ("cloud",)),
        max_cost_usd_micro=some(draw, None, USD, 100 * USD),
        users=some(draw, None, None, ("r-s",), ("r-cloud",)),
        max_round_trip_ms=some(draw, None, 10, 60),
    )
    entry = Avoided(
        some(draw, None, "cloud"), "evicted", NOW, some(draw, None, now + timedelta(seconds=9)), draw(st.booleans())
    )
    return replace(
        asked,
        uid=f"uid-{number}",  # type: ignore[arg-type]
        declared=declared,
        job_name=some(draw, "g0", "old", "job"),
        waiting_since=NOW - timedelta(seconds=number),
        resource_version=str(draw(st.integers(1, 2))),
        listed_clusters=some(draw, asked.listed_clusters, asked.listed_clusters[:1]),
        already_nominated=some(draw, (), (), ("cloud",)),
        attempt=draw(st.integers(1, 2)),
        avoided=some(draw, (), (), (entry,)),
    )


@st.composite
def promises(draw: st.DrawFn, now: datetime) -> tuple[Hold, ...]:
    found = [
        replace(
            hold(f"h{at}", some(draw, *NAMES), draw(st.integers(1, 2))),
            workload=some(draw, "uid-0", "uid-9", f"uid-h{at}"),
            expires_at=now + timedelta(seconds=some(draw, 0, 1, 300)),
            yields_above=some(draw, None, None, 0),
            made_at=now - timedelta(seconds=draw(st.integers(0, 2))),
            workload_key=some(draw, f"team/h{at}", "team/g0"),
            former_copy=some(draw, None, None, copy("g0").uid),
            incoming=some(draw, (), (("d", now + timedelta(seconds=60)),)),
        )
        for at in range(draw(st.integers(0, 3)))
    ]
    return tuple(found)


@runs
@given(st.data())
def test_a_memo_that_has_seen_anything_gives_the_same_bytes_as_none(data_: st.DataObject) -> None:
    draw = data_.draw
    memo, now = CandidateMemo(), NOW
    book = draw(policies())
    world = {name: draw(clusters(name)) for name in NAMES}
    snapshot = Snapshot(tuple(world.values()), ())
    asked = draw(requests(book, now))
    for _ in range(draw(st.integers(1, 8))):
        for change in draw(
            st.sets(st.sampled_from(("view", "nudge", "age", "policy", "clock", "holds", "request")), max_size=2)
        ):
            if change == "view":
                name = draw(st.sampled_from(NAMES))
                world[name] = draw(clusters(name))
            elif change == "nudge":
                name = draw(st.sampled_from(NAMES))
                world[name] = draw(nudges(world[name]))
            elif change == "age":
                world = {name: _aged(found, draw(st.integers(0, 2))) for name, found in world.items()}
            elif change == "policy":
                book = draw(policies())
            elif change == "clock":
                now += timedelta(seconds=draw(st.sampled_from((-1, 1, 10, 86_400, 40 * 86_400))))
            elif change == "holds":
                snapshot = replace(snapshot, holds=draw(promises(now)))
            else:
                asked = draw(requests(book, now))
            if change in ("view", "nudge", "age"):
                snapshot = Snapshot(tuple(world.values()), snapshot.holds)
        with_memo = decide(asked, snapshot, book, now, memo)
        assert repr(with_memo) == repr(decide(asked, snapshot, book, now))
        assert with_memo.valid_until == _ends(with_memo, asked, book, now)
        made = hold_of(with_memo, asked, book, now, snapshot)
        if made is not None and draw(st.booleans()):
            snapshot = snapshot.with_hold(made)


def _ends(decision: Decision, asked: Request, book: Policy, now: datetime) -> datetime | None:
    """Until when the law allows the choice, asked anew."""
    chosen = decision.candidate(decision.chosen) if decision.chosen is not None else None
    if chosen is None or chosen.cluster not in book.clusters:
        return None
    flavors = tuple(dict.fromkeys(placement.flavor for placement in chosen.placements))
    end = now + timedelta(seconds=decision.estimate.duration_s)
    return ruling_on(asked, book.clusters[chosen.cluster], book, now, flavors, end).valid_until


def _aged(cluster: ClusterSnapshot, seconds: int) -> ClusterSnapshot:
    """The same content, heard of later: a view is another object then, its parts are the same."""
    if cluster.worker is None:
        return cluster
    return replace(cluster, worker=replace(cluster.worker, observed_at=NOW + timedelta(seconds=seconds)))


def test_a_memo_past_its_bound_forgets_and_answers_the_same(monkeypatch: Any) -> None:
    monkeypatch.setattr(memo_module, "CANDIDATES", 2)
    monkeypatch.setattr(memo_module, "REQUESTS", 2)
    book = policy([site("onprem", "DE")], [compute("onprem", USD)])
    seen = Snapshot((ClusterSnapshot("onprem", Link.CONNECTED, None, worker("onprem")),))  # type: ignore[arg-type]
    memo = CandidateMemo()
    asked = [request(f"g{at}", pods(1, 1 + at % 5)) for at in range(12)]
    asked = [replace(one, uid=f"uid-{at}") for at, one in enumerate(asked)]  # type: ignore[arg-type]
    for one in (*asked, *reversed(asked)):
        assert repr(decide(one, seen, book, NOW, memo)) == repr(decide(one, seen, book, NOW))
        assert sum(len(found.candidates) for found in memo._fields.values()) <= 2
        assert len(memo._asked) <= 2
