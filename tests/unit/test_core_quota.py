"""Cohort headroom on worked examples: each row is what Kueue v0.19 would leave a queue (kueue-contract section 12)."""

from __future__ import annotations

import pytest

from dispatcher.core.ids import FlavorName, QueueName
from dispatcher.core.quota import QuotaTree, quota_tree
from dispatcher.core.snapshot import ClusterQueueView, CohortView, Quota
from tests.core_builders import GPU, worker

F = FlavorName("h100")
FR = (F, GPU)


def cq(
    name: str,
    nominal: int,
    used: int = 0,
    borrow: int | None = None,
    lend: int | None = None,
    cohort: str | None = "co",
) -> ClusterQueueView:
    quotas = (Quota(F, GPU, nominal, borrow, lend, used),)
    return ClusterQueueView(QueueName(name), active=True, cohort=cohort, quotas=quotas)


def cohort(
    name: str, nominal: int = 0, parent: str | None = None, borrow: int | None = None, lend: int | None = None
) -> CohortView:
    return CohortView(name, parent, (Quota(F, GPU, nominal, borrow, lend),))


def tree(*parts: ClusterQueueView | CohortView) -> QuotaTree:
    queues = [p for p in parts if isinstance(p, ClusterQueueView)]
    return quota_tree(worker(queues=queues, cohorts=[p for p in parts if isinstance(p, CohortView)]))


A_ALONE = cq("a", 10, 4, cohort=None)


@pytest.mark.parametrize(
    ("parts", "available", "potential"),
    [
        pytest.param([A_ALONE], 6, 10, id="a queue without cohort has its nominal quota less its use"),
        pytest.param([cq("a", 4, 6, cohort=None)], -2, 4, id="over-use shows as a debt"),
        pytest.param([cq("a", 10), cq("b", 10, 3)], 17, 20, id="what a sibling does not use may be borrowed"),
        pytest.param([cq("a", 10, borrow=2), cq("b", 10, 3)], 12, 12, id="a borrowing limit caps it"),
        pytest.param([cq("a", 10, borrow=0), cq("b", 10)], 10, 10, id="a borrowing limit of zero is not no limit"),
        pytest.param([cq("a", 10), cq("b", 10, 3, lend=4)], 14, 14, id="a sibling lends no more than its limit"),
        pytest.param([cq("a", 10), cq("b", 10, 8, lend=4)], 12, 14, id="its use fills its private part first"),
        pytest.param([cq("a", 10), cq("b", 10, lend=0)], 10, 10, id="a lending limit of zero lends nothing"),
        pytest.param([cq("a", 10, 12), cq("b", 10, 3)], 5, 20, id="a borrower keeps what it has borrowed"),
        pytest.param([cq("a", 10), cq("b", 10, 14)], 6, 20, id="a sibling that borrows from us leaves less"),
        pytest.param([cq("a", 0), cohort("co", 8)], 8, 8, id="a cohort has quota of its own"),
        pytest.param(
            [
                cq("a", 10, cohort="left"),
                cohort("left", parent="root"),
                cq("b", 6, cohort="right"),
                cohort("right", parent="root", lend=2),
            ],
            12,
            12,
            id="a cohort lends its sibling cohorts no more than its limit",
        ),
        pytest.param(
            [
                cq("a", 10, cohort="left"),
                cohort("left", parent="root", borrow=3),
                cq("b", 9, cohort="right"),
                cohort("right", parent="root"),
            ],
            13,
            13,
            id="a cohort borrows no more than its limit",
        ),
        pytest.param(
            [
                cq("a", 2, cohort="left"),
                cq("c", 4, 6, cohort="left"),
                cohort("left", parent="root", borrow=3),
                cq("b", 9, cohort="right"),
                cohort("right", parent="root"),
            ],
            3,
            9,
            id="what a sibling has borrowed counts against the cohort's limit",
        ),
        pytest.param(
            [cq("a", 10, cohort="x"), cohort("x", parent="y"), cohort("y", parent="x")],
            0,
            0,
            id="cohorts in a ring have nothing",
        ),
    ],
)
def test_headroom(parts: list[ClusterQueueView | CohortView], available: int, potential: int) -> None:
    found = tree(*parts)
    assert found.available(QueueName("a"), FR) == available
    assert found.potential(QueueName("a"), FR) == potential


def test_a_reservation_takes_private_quota_first_and_borrows_the_rest() -> None:
    before = tree(cq("a", 10, lend=4), cq("b", 2))
    assert before.available(QueueName("b"), FR) == 6
    after = before.with_usage(QueueName("a"), {FR: 6})
    assert after.available(QueueName("b"), FR) == 6
    assert after.with_usage(QueueName("a"), {FR: 2}).available(QueueName("b"), FR) == 4
    assert before.available(QueueName("b"), FR) == 6, "the tree before is unchanged"


def test_a_queue_or_resource_without_quota_has_none() -> None:
    found = tree(A_ALONE)
    assert found.available(QueueName("z"), FR) == 0
    assert found.available(QueueName("a"), (F, "cpu")) == 0
    assert not found.covers(QueueName("a"), (F, "cpu"))


def test_members_of_a_cohort_tree() -> None:
    found = tree(
        cq("a", 1, cohort="left"),
        cq("b", 1, cohort="right"),
        cohort("left", parent="root"),
        cohort("right", parent="root"),
        cq("c", 1, cohort=None),
    )
    assert found.cohort_members(QueueName("a")) == {"a", "b"}
    assert found.cohort_members(QueueName("c")) == {"c"}
