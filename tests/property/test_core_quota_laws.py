"""Laws of cohort headroom on random trees."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.ids import FlavorName, QueueName
from dispatcher.core.quota import queue_key, quota_tree
from dispatcher.core.snapshot import ClusterQueueView, CohortView, Quota, WorkerView
from tests.core_builders import GPU, worker

F = FlavorName("h100")
FR = (F, GPU)
COHORTS = ("root", "left", "right")
PARENTS = {"root": None, "left": "root", "right": "root"}

small = st.integers(0, 12)
limit = st.none() | small


@st.composite
def worlds(draw: st.DrawFn) -> WorkerView:
    """Up to four queues, with or without a cohort, under a tree of three cohorts; every limit present or not."""
    queues = [
        ClusterQueueView(
            QueueName(f"q{i}"),
            active=True,
            cohort=draw(st.none() | st.sampled_from(COHORTS)),
            quotas=(Quota(F, GPU, draw(small), draw(limit), draw(limit), draw(small)),),
        )
        for i in range(draw(st.integers(1, 4)))
    ]
    cohorts = [CohortView(c, PARENTS[c], (Quota(F, GPU, draw(small), draw(limit), draw(limit)),)) for c in COHORTS]
    return worker(queues=queues, cohorts=cohorts)


def used_more(view: WorkerView, name: QueueName, amount: int) -> WorkerView:
    old = view.queues[name]
    quotas = tuple(replace(q, reserved=q.reserved + amount) for q in old.quotas)
    return replace(view, queues={**view.queues, name: replace(old, quotas=quotas)})


@given(worlds(), st.integers(0, 10), st.integers(0, 3))
def test_reserving_equals_having_reserved(view: WorkerView, amount: int, at: int) -> None:
    name = sorted(view.queues)[at % len(view.queues)]
    after = quota_tree(view).with_usage(name, {FR: amount})
    anew = quota_tree(used_more(view, name, amount))
    assert {q: after.available(q, FR) for q in view.queues} == {q: anew.available(q, FR) for q in view.queues}


@given(worlds(), st.integers(0, 10), st.integers(0, 3))
def test_more_use_never_leaves_anybody_more(view: WorkerView, amount: int, at: int) -> None:
    name = sorted(view.queues)[at % len(view.queues)]
    before, after = quota_tree(view), quota_tree(view).with_usage(name, {FR: amount})
    assert all(after.available(q, FR) <= before.available(q, FR) for q in view.queues)
    assert after.available(name, FR) == before.available(name, FR) - amount


@given(worlds(), st.integers(1, 10), st.integers(0, 3))
def test_giving_back_restores_what_was_there(view: WorkerView, amount: int, at: int) -> None:
    name = sorted(view.queues)[at % len(view.queues)]
    before = quota_tree(view)
    back = before.with_usage(name, {FR: amount}).with_usage(name, {FR: -amount})
    assert {q: back.available(q, FR) for q in view.queues} == {q: before.available(q, FR) for q in view.queues}


@given(worlds())
def test_taking_what_is_available_overdraws_nobody(view: WorkerView) -> None:
    """From a sound start: every node stays within its subtree quota and its borrowing limit."""
    tree = quota_tree(replace(view, queues={n: _idle(q) for n, q in view.queues.items()}))
    for name in sorted(view.queues):
        tree = tree.with_usage(name, {FR: max(0, tree.available(name, FR))})
        assert tree.available(name, FR) == 0
    for key, amounts in tree.usage.items():
        quota = tree.limits[key].get(FR)
        used, total = amounts.get(FR, 0), tree.subtree[key].get(FR, 0)
        if key not in tree.parents:
            assert used <= total
        elif quota is not None and quota.borrowing_limit is not None:
            assert used <= total + quota.borrowing_limit
    roots = {key for key in tree.limits if key not in tree.parents}
    nominal = sum(q.nominal for quotas in tree.limits.values() for q in quotas.values())
    taken = sum(tree.usage[queue_key(n)].get(FR, 0) for n in view.queues)
    assert taken <= nominal
    assert roots


@given(worlds())
def test_nothing_available_exceeds_what_is_possible(view: WorkerView) -> None:
    tree = quota_tree(replace(view, queues={n: _idle(q) for n, q in view.queues.items()}))
    assert all(tree.available(q, FR) == tree.potential(q, FR) for q in view.queues)
    used = quota_tree(view)
    assert all(used.available(q, FR) <= used.potential(q, FR) for q in view.queues)


def _idle(queue: ClusterQueueView) -> ClusterQueueView:
    return replace(queue, quotas=tuple(replace(q, reserved=0) for q in queue.quotas))
