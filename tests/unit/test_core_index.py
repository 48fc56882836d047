"""What of a worker's view has its candidates weighed again, and what does not (ADR 14)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from dispatcher.core.index import index_view
from dispatcher.core.resources import Resources
from dispatcher.core.snapshot import WorkerView
from tests.core_builders import NOW, copy, node, queue, quota, res, worker


def seen(**over: object) -> WorkerView:
    """Two nodes, one of them in use by a copy that has its quota, and one copy that waits for some."""
    base = worker(
        "onprem",
        (node("a", used=8), node("b")),
        [queue(quotas=quota(16, used=8))],
        copies=[copy("runs", bound=1), copy("waits", reserved=False)],
    )
    return replace(base, **over)  # type: ignore[arg-type]


def with_queue(**over: object) -> WorkerView:
    found = seen()
    return replace(found, queues={name: replace(known, **over) for name, known in found.queues.items()})  # type: ignore[arg-type]


def with_copy(name: str, **over: object) -> WorkerView:
    found = seen()
    return replace(found, copies={**found.copies, ("team", name): replace(found.copies["team", name], **over)})  # type: ignore[arg-type]


def bound_later() -> tuple[WorkerView, WorkerView]:
    """A pod that room is kept for, and the same pod on its node."""
    waits, lies = copy("runs", bound=0), copy("runs", bound=1)
    full = replace(node("a"), requested=res(8).plus(Resources.of({"pods": 1})))
    before = seen(nodes=(node("a"), node("b")), copies={("team", "runs"): waits})
    return before, replace(before, nodes=(full, node("b")), copies={("team", "runs"): lies})


@pytest.mark.parametrize(
    ("after", "alike"),
    [
        pytest.param(with_queue(pending=7), True, id="a queue's length decides nothing"),
        pytest.param(with_copy("waits", quota_message="no room"), True, id="a copy without quota takes nothing"),
        pytest.param(seen(copies={("team", "runs"): copy("runs", bound=1)}), True, id="nor does it once it is gone"),
        pytest.param(with_copy("runs", finished_reason="x"), True, id="nobody is weighed by why something finished"),
        pytest.param(with_queue(active=False), False, id="a queue that stopped"),
        pytest.param(with_queue(quotas=quota(16, used=0)), False, id="quota that came back"),
        pytest.param(with_queue(preempts_lower_priority=True), False, id="whom a queue may stop"),
        pytest.param(with_copy("runs", admitted_at=NOW), False, id="since when a victim runs"),
        pytest.param(with_copy("runs", evicted_at=NOW), False, id="who is leaving"),
        pytest.param(with_copy("runs", priority=3), False, id="who may be stopped"),
        pytest.param(with_copy("runs", quota_reserved_at=NOW + timedelta(1)), False, id="who is stopped first"),
        pytest.param(with_copy("runs", finished=True), False, id="who holds nothing any more"),
        pytest.param(with_copy("waits", ours=False), False, id="a name that is taken"),
        pytest.param(seen(nodes=(node("a", used=8), node("b", used=1))), False, id="what is free on nodes"),
        pytest.param(seen(nodes=(node("a", used=8), node("b", ready=False))), False, id="a node that is away"),
        pytest.param(seen(namespaces=()), False, id="a namespace that is missing"),
    ],
)
def test_only_what_a_candidate_reads_has_it_weighed_again(after: WorkerView, alike: bool) -> None:
    before = index_view(seen())
    found = index_view(after, before)
    assert found.weighs_like(before) is alike
    assert found.digest != before.digest


def test_pods_that_come_to_lie_where_room_was_kept_for_them_change_nothing() -> None:
    before, after = bound_later()
    known = index_view(before)
    assert index_view(after, known).weighs_like(known)
