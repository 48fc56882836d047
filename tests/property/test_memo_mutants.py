"""The law of the memo can fail: without any one of the things that a memo depends on, some change is not noticed.

Each mutant is a memo that is blind to one dependency. For each there is a step after which it answers otherwise than a
decision made anew, and the true memo does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from dispatcher.core.context import Setting
from dispatcher.core.decide import decide
from dispatcher.core.memo import CandidateMemo, shape_of, window_of
from dispatcher.core.policy import PriceUnit
from dispatcher.core.slate import Weigh
from dispatcher.core.snapshot import Cached, ClusterSnapshot, Link, MultiKueueClusterView, Snapshot
from dispatcher.core.workload import DataUse, Destination, Request, WorkloadClass
from residency.rules import Rule
from residency.vocabulary import At, Effect, Flow
from tests.core_builders import (
    GB,
    NOW,
    USD,
    compute,
    copy,
    data,
    egress,
    hold,
    law,
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


@dataclass(frozen=True, slots=True)
class Case:
    """Everything that one decision sees."""

    request: Request
    snapshot: Snapshot
    policy: Any
    now: datetime
    before: Case | None = None
    """What was decided before it; None: BASE."""


def _view(used: int = 0, **more: Any) -> Any:
    return worker("onprem", (node("n", used=used),), [queue(quotas=quota(8, used=used))], **more)


def _cluster(view: Any = None, link: Link = Link.CONNECTED, active: bool = True) -> ClusterSnapshot:
    hub = MultiKueueClusterView("onprem", active=active)  # type: ignore[arg-type]
    return ClusterSnapshot("onprem", link, hub, view or _view())  # type: ignore[arg-type]


def _caching() -> ClusterSnapshot:
    known = Cached("d", 100 * GB, "team/other", "d-other", NOW, NOW, there=True)  # type: ignore[arg-type]
    return replace(_cluster(), cached=(known,))


def _policy(usd: int = 1, days: int = 3650) -> Any:
    book = policy(
        [site("onprem", "DE")],
        [compute("onprem", usd * USD), compute("onprem", USD // 100, "cpu", PriceUnit.VCPU_HOUR)],
        [egress("r-onprem", "r-cloud", 1000), egress("r-cloud", "r-onprem", 1000)],
        [data("d", 100 * GB, ("a",), ["onprem"]), data("secret", 100 * GB, ("b",), ["onprem"])],
        [rule("a", "DE"), rule("b", "US")],
        stores=[store("saves", region="r-cloud")],
    )
    brief = WorkloadClass.INTERACTIVE
    classes = {**book.classes, brief: replace(book.classes[brief], default_duration_s=60)}
    home = Rule("home", ("a",), (Flow.OUTPUT, Flow.CHECKPOINT), Effect.FORBID, at=At("residency/rules.yaml", 1, 1))
    return replace(
        book,
        prices=replace(book.prices, max_age_days=days),
        classes=classes,
        residency=law([rule("a", "DE"), rule("b", "US")], home),
    )


def _request() -> Request:
    asked = request("g", pods(1, 2))
    return replace(
        asked,
        listed_clusters=("onprem",),
        declared=replace(asked.declared, data=(DataUse("d", 1),), expected_duration_s=None),
    )  # type: ignore[arg-type]


BASE = Case(_request(), Snapshot((_cluster(),)), _policy(), NOW)


def _with(**changes: Any) -> Case:
    return replace(BASE, **changes)


def _seen(**changes: Any) -> Case:
    return _with(snapshot=Snapshot((_cluster(**changes),)))


def _reading_through_a_cache() -> Case:
    book = _policy()
    far = replace(book.data_sets["d"], replica_clusters=(), replica_stores=("saves",))
    there = replace(book.clusters["onprem"], cache_bytes=10**12)
    book = replace(book, data_sets={**book.data_sets, "d": far}, clusters={**book.clusters, "onprem": there})
    return _with(policy=book, snapshot=Snapshot((_caching(),)))


def _asking(**changes: Any) -> Case:
    """Another request that differs in these fields alone; so does its name, by which nothing is remembered."""
    return _with(request=replace(BASE.request, uid="uid-other", name="other", **changes))


def _saying(**changes: Any) -> Case:
    return _asking(declared=replace(BASE.request.declared, **changes))


SAVES = Destination("saves", "x")  # type: ignore[arg-type]


def _from(before: Case, **said: Any) -> Case:
    """What `before` asks, saying one thing more."""
    one = before.request
    more = replace(one, uid="uid-more", name="more", declared=replace(one.declared, **said))
    return replace(before, request=more, before=before)  # type: ignore[arg-type]


def _again(before: Case) -> Case:
    return replace(before, request=replace(before.request, uid="uid-more", name="more", attempt=2), before=before)


@dataclass(slots=True)
class Blind(CandidateMemo):
    """A memo that is shown something else than what is there."""

    glasses: Callable[[Snapshot, Any, datetime], tuple[Snapshot, Any, datetime]] = field(default=lambda *seen: seen)

    def steps(self, setting: Setting, snapshot: Snapshot, weigh: Weigh) -> Iterator[None]:
        snapshot, book, now = self.glasses(snapshot, setting.policy, setting.now)
        return CandidateMemo.steps(self, replace(setting, policy=book, now=now), snapshot, weigh)


def blind(glasses: Callable[[Snapshot, Any, datetime], tuple[Snapshot, Any, datetime]]) -> CandidateMemo:
    return Blind(glasses=glasses)


def forgetting(**fields: Any) -> CandidateMemo:
    """Shapes without these fields."""
    return CandidateMemo(shape=lambda asked: replace(shape_of(asked), **fields))


def mute(**fields: Any) -> CandidateMemo:
    """Shapes without these declarations."""

    def shape(asked: Request) -> Request:
        found = shape_of(asked)
        return replace(found, declared=replace(found.declared, **fields))

    return CandidateMemo(shape=shape)


def _first_cluster(**fields: Any) -> Callable[[Snapshot, Any, datetime], tuple[Snapshot, Any, datetime]]:
    return lambda seen, book, now: (replace(seen, clusters=(replace(seen.clusters[0], **fields),)), book, now)


def _gang(count: int) -> Any:
    return (pods(count, 8),)


MUTANTS: dict[str, tuple[Callable[[], CandidateMemo], Case]] = {
    "holds": (
        lambda: blind(lambda seen, book, now: (replace(seen, holds=()), book, now)),
        _with(snapshot=Snapshot((_cluster(),), (hold("h", "onprem", 8),))),
    ),
    "the view": (lambda: blind(_first_cluster(worker=BASE.snapshot.clusters[0].worker)), _seen(view=_view(8))),
    "the link": (lambda: blind(_first_cluster(link=Link.CONNECTED)), _seen(link=Link.STALE)),
    "the hub's cluster": (
        lambda: blind(_first_cluster(multikueue=BASE.snapshot.clusters[0].multikueue)),
        _seen(active=False),
    ),
    "the cache": (lambda: blind(_first_cluster(cached=())), _reading_through_a_cache()),
    "the policy": (lambda: blind(lambda seen, book, now: (seen, BASE.policy, now)), _with(policy=_policy(2))),
    "the window of time": (
        lambda: CandidateMemo(window=lambda book, now: window_of(book, NOW)),
        _with(now=NOW + timedelta(days=4000)),
    ),
    "a wall clock that was set": (
        lambda: blind(lambda seen, book, now: (replace(seen, wall_ahead_s=0), book, now)),
        _with(snapshot=replace(BASE.snapshot, wall_ahead_s=4000 * 86400)),
    ),
    "pod sets": (lambda: forgetting(pod_sets=BASE.request.pod_sets), _asking(pod_sets=_gang(2))),
    "the namespace": (lambda: forgetting(namespace=BASE.request.namespace), _asking(namespace="elsewhere")),
    "the local queue": (lambda: forgetting(local_queue=BASE.request.local_queue), _asking(local_queue="none")),
    "the listed clusters": (lambda: forgetting(listed_clusters=("onprem",)), _asking(listed_clusters=())),
    "what is nominated": (lambda: forgetting(already_nominated=()), _asking(already_nominated=("onprem",))),
    "the class": (
        lambda: mute(workload_class=BASE.request.declared.workload_class),
        _saying(workload_class=WorkloadClass.INTERACTIVE),
    ),
    "the data": (lambda: mute(data=BASE.request.declared.data), _saying(data=(DataUse("secret", 1),))),
    "the outputs": (lambda: mute(outputs=None), _saying(outputs=Destination("nowhere", "x"))),
    "the checkpoint": (lambda: mute(checkpoint=None), _saying(checkpoint=Destination("nowhere", "x"))),
    "the size of outputs": (
        lambda: mute(outputs_bytes=None),
        _from(_saying(outputs=SAVES), outputs_bytes=500 * GB),
    ),
    "the size of checkpoints": (
        lambda: mute(checkpoint_bytes=None),
        _from(_saying(checkpoint=SAVES, checkpoint_interval_s=60), checkpoint_bytes=500 * GB),
    ),
    "how often there is a checkpoint": (
        lambda: mute(checkpoint_interval_s=None),
        _from(_saying(checkpoint=SAVES, checkpoint_bytes=500 * GB), checkpoint_interval_s=60),
    ),
    "whether there may be a checkpoint": (
        lambda: forgetting(attempt=0),
        _again(_saying(checkpoint=SAVES, checkpoint_bytes=500 * GB, checkpoint_interval_s=60)),
    ),
    "the duration": (lambda: mute(expected_duration_s=None), _saying(expected_duration_s=60)),
    "the clusters asked for": (lambda: mute(clusters=None), _saying(clusters=("cloud",))),
    "where its users are": (lambda: mute(users=None), _from(_saying(max_round_trip_ms=10), users=("r-x",))),
    "the longest round trip": (
        lambda: mute(max_round_trip_ms=None),
        _from(_saying(users=("r-x",)), max_round_trip_ms=1),
    ),
    "the highest cost": (lambda: mute(max_cost_usd_micro=None), _saying(max_cost_usd_micro=1)),
}


def _differs(memo: CandidateMemo, case: Case) -> bool:
    for one in (case.before or BASE, case):
        made = decide(one.request, one.snapshot, one.policy, one.now, memo)
        if repr(made.candidates) != repr(decide(one.request, one.snapshot, one.policy, one.now).candidates):
            return True
    return False


@pytest.mark.parametrize("name", MUTANTS)
def test_a_memo_without_a_dependency_is_found_out_and_the_true_one_holds(name: str) -> None:
    mutant, case = MUTANTS[name]
    assert _differs(mutant(), case), f"nothing depends on {name}: it can leave the key, or the step shows too little"
    assert not _differs(CandidateMemo(), case)


def test_the_priority_is_a_dependency_where_a_preemption_would_help() -> None:
    old = copy("old", 1, 8, priority=5, bound=1)
    view = worker(
        "onprem", (node("n", used=8),), [queue(quotas=quota(8, used=8), preempts_lower_priority=True)], copies=[old]
    )
    snapshot = Snapshot((_cluster(view),))
    low, high = (replace(BASE.request, uid=f"uid-{p}", priority=p) for p in (1, 9))  # type: ignore[arg-type]
    found = []
    for memo in (forgetting(priority=0), CandidateMemo()):
        decide(low, snapshot, BASE.policy, NOW, memo)
        made = decide(high, snapshot, BASE.policy, NOW, memo)
        found.append(repr(made.candidates) == repr(decide(high, snapshot, BASE.policy, NOW).candidates))
    assert found == [False, True]
