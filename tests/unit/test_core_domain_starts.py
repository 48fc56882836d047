"""When a rack will be free: a gang that lacks only that holds its earliest start, by where what runs lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from dispatcher.core.backfill import Ask, Option, Reservation, Schedule
from dispatcher.core.decision import Basis, Candidate, Estimate, Fit, Placement
from dispatcher.core.ids import ClusterName, FlavorName, WorkloadUid
from dispatcher.core.index import ClusterIndex, index_view
from dispatcher.core.keeping import (
    Part,
    Taker,
    bare_of,
    calendar,
    charge,
    free_of,
    grounds_of,
    option_of,
    parts_of,
    shelves_of,
    with_places,
)
from dispatcher.core.snapshot import Hold
from dispatcher.core.topology import Topology, TopologyWish
from tests.core_builders import FLAVOR, GPU, NOW, QUEUE, copy, flavor, hold, pods, queue, quota, res, worker
from tests.unit.test_core_topology import RACK, RACKS, racked

ONPREM, H100 = ClusterName("onprem"), FlavorName(FLAVOR)
EIGHT = res(8)
LONG = 10_000


def index_of(*racks: str, used: Sequence[int] = (), topology: Topology = RACKS, **over: object) -> ClusterIndex:
    queues = [queue(quotas=quota(64))]
    flavors = [replace(flavor(), topology=topology)]
    return index_view(worker("onprem", racked(*racks, used=used), queues, flavors=flavors, **over))  # type: ignore[arg-type]


def runs(ends_s: int, *nodes: str, pods: int = 1, known: bool = True) -> Taker:
    """Pods of eight GPUs that end then, on these nodes."""
    estimate = Estimate(ends_s, Basis.DECLARED) if known else None
    lies = tuple((node, EIGHT, 1) for node in nodes)
    return Taker(QUEUE, (Part(H100, GPU, pods, 8),), NOW, estimate, ("team", "old"), lies)


def there(*placements: Placement) -> Candidate:
    return Candidate(ONPREM, Fit.WHEN_OTHERS_LEAVE, (), (), 0, QUEUE, placements, NOW, "")


def gang(count: int, gpu: int = 8, level: str | None = RACK, nodes: int = 0) -> tuple[Part, ...]:
    wanted = replace(pods(count, gpu), topology=TopologyWish(level) if level else None)
    return parts_of(there(Placement("main", H100, count, nodes or count)), [wanted])


def reserved(
    index: ClusterIndex,
    takers: Sequence[Taker],
    *gangs: tuple[Part, ...],
    promised: Sequence[Taker] = (),
    holds: tuple[Hold, ...] = (),
    lasts_s: int = 3600,
) -> tuple[Reservation, ...]:
    """What gangs reserve there, one after the other."""
    grounds = grounds_of([(QUEUE, parts) for parts in gangs], index)
    known = with_places(takers, promised, index, holds)
    made = calendar(grounds, free_of(grounds, index, holds), known, NOW, shelves_of(grounds, index))
    made = replace(made, bare=bare_of(grounds, index))
    plan = Schedule({ONPREM: made}, NOW)
    for at, parts in enumerate(gangs):
        option = option_of(there(), parts, lasts_s, grounds)
        assert option is not None
        plan.reserve(Ask(WorkloadUid(f"g{at}"), f"team/g{at}", (option,)))
    return plan.reservations()


def in_s(found: Sequence[Reservation]) -> list[int]:
    return [int((each.start - NOW).total_seconds()) for each in found]


@pytest.mark.parametrize(
    ("racks", "used", "takers", "starts"),
    [
        pytest.param(
            ("a", "a", "b", "b"), (8, 0, 8), (runs(50, "n0"), runs(90, "n2")), [50], id="the rack that opens first"
        ),
        pytest.param(
            ("a", "a", "b", "b"), (8, 8, 8), (runs(50, "n0"), runs(90, "n2"), runs(70, "n1")), [70], id="as a whole"
        ),
        pytest.param(
            ("a", "b", "b", "c"),
            (0, 8, 8),
            (runs(50, "n1"), runs(90, "n2")),
            [90],
            id="free nodes elsewhere do not count",
        ),
        pytest.param(("a", "a"), (8,), (runs(50),), [], id="of what is known to run but not where, nothing comes back"),
        pytest.param(("a", "a"), (8,), (runs(50, "n0", known=False),), [], id="nor of what has no known end"),
        pytest.param(("a", "b"), (), (), [], id="where no rack is large enough nothing opens"),
        pytest.param(("a", "a"), (), (), [], id="what fits by our numbers and waits has no start that can be said"),
    ],
)
def test_a_gang_starts_when_a_rack_opens(
    racks: tuple[str, ...], used: Sequence[int], takers: tuple[Taker, ...], starts: list[int]
) -> None:
    assert in_s(reserved(index_of(*racks, used=used), takers, gang(2))) == starts


def test_of_two_racks_that_open_together_that_is_kept_of_which_less_is_idle_until_then() -> None:
    index = index_of("a", "a", "a", "b", "b", "b", used=(8, 0, 0, 8, 8, 8))
    (found,) = reserved(index, (runs(50, "n0"), runs(50, "n3", "n4", "n5", pods=3)), gang(3))
    assert list(found.exposed) == [("domain", FLAVOR, GPU, "8", RACK, "b1", "b")]
    assert list(found.exposed.values()) == [0]


def test_two_gangs_reserve_a_rack_each_and_a_third_behind_the_first_that_ends() -> None:
    index = index_of("a", "a", "b", "b", used=(8, 0, 8))
    takers = (runs(50, "n0"), runs(90, "n2"))
    assert in_s(reserved(index, takers, gang(2), gang(2), gang(2), lasts_s=100)) == [50, 90, 150]


def test_a_gang_without_a_level_counts_as_it_did() -> None:
    index = index_of("a", "b", used=(8,))
    assert in_s(reserved(index, (runs(50),), gang(2, level=None))) == [50]


def test_levels_that_may_not_be_read_are_told_by_the_label_that_is_named() -> None:
    index = index_of("x/a", "y/a", used=(8,), topology=Topology("racks"))
    assert in_s(reserved(index, (runs(50, "n0"),), gang(2))) == [50]
    known = index_of("x/a", "y/a", used=(8,))
    assert in_s(reserved(known, (runs(50, "n0"),), gang(2))) == []


def test_what_is_promised_and_what_is_on_its_way_comes_back_where_it_was_laid() -> None:
    """Neither is on a node yet, and each takes a node of rack a, which is the first by name."""
    waiting = copy("old", count=1, bound=0)
    index = index_of("a", "a", "b", used=(0, 0, 8), copies=[waiting])
    on_its_way = Taker(QUEUE, (Part(H100, GPU, 1, 8),), NOW, Estimate(70, Basis.DECLARED), ("team", "old"))
    assert in_s(reserved(index, (on_its_way,), gang(2))) == [70]
    promise = hold("h", cluster="onprem", usage=(("main", 1, EIGHT, H100),))
    plain = index_of("a", "a", "b", used=(0, 0, 8))
    promised = Taker(QUEUE, (Part(H100, GPU, 1, 8),), NOW, Estimate(60, Basis.DECLARED))
    assert in_s(reserved(plain, (), gang(2), promised=(promised,), holds=(promise,))) == [60]


def passes(found: Reservation, gpu: int, nodes: int, until_s: int) -> bool:
    parts = (Part(H100, GPU, nodes, gpu, nodes),)
    return found.lets_pass(charge(found, QUEUE, parts), NOW + timedelta(seconds=until_s))


@pytest.mark.parametrize(
    ("used", "needs", "gpu", "until_s", "may"),
    [
        pytest.param((8, 8, 0), 3, 8, 40, True, id="what ends before the rack opens"),
        pytest.param((8, 8, 0), 2, 8, LONG, True, id="what leaves it enough beside"),
        pytest.param((8, 8, 0), 3, 8, LONG, False, id="not what could take the node that is free there"),
        pytest.param((8, 8, 0), 3, 1, LONG, False, id="nor what would break it"),
        pytest.param((8, 8, 8), 3, 8, LONG, True, id="anything, where nothing of the rack is free before it opens"),
    ],
)
def test_small_work_passes_only_where_it_does_not_delay_the_gang(
    used: tuple[int, ...], needs: int, gpu: int, until_s: int, may: bool
) -> None:
    """Rack a has three nodes, and opens in 50 s; four more nodes are free, each in a rack of its own."""
    index = index_of("a", "a", "a", "b", "c", "d", "e", used=used)
    takers = tuple(runs(50, f"n{at}") for at, taken in enumerate(used) if taken)
    (found,) = reserved(index, takers, gang(needs))
    assert passes(found, gpu, 1, until_s) is may


def test_what_is_promised_a_node_of_the_rack_may_come_elsewhere_and_leaves_it_open_to_others() -> None:
    """Where room was kept for it is a guess; only what is on nodes is not free."""
    index = index_of("a", "a", "b", used=(8,))
    promise = hold("h", cluster="onprem", usage=(("main", 1, EIGHT, H100),))
    promised = Taker(QUEUE, (Part(H100, GPU, 1, 8),), NOW, Estimate(10, Basis.DECLARED))
    (found,) = reserved(index, (runs(50, "n0"),), gang(2), promised=(promised,), holds=(promise,))
    assert list(found.exposed.values()) == [8]
    assert not passes(found, 8, 1, LONG)


def test_who_has_passed_has_taken_of_what_could_be_taken() -> None:
    index = index_of("a", "a", "a", "b", "c", used=(8, 8))
    (found,) = reserved(index, (runs(50, "n0"), runs(50, "n1")), gang(2))
    parts = (Part(H100, GPU, 1, 8, 1),)
    until = NOW + timedelta(seconds=LONG)
    assert found.lets_pass(charge(found, QUEUE, parts), until)
    after = found.after(charge(found, QUEUE, parts), until)
    assert list(after.exposed.values()) == [0]
    assert after.lets_pass(charge(after, QUEUE, parts), until), "nothing of the rack is left that it could take"


def starts_of(option: Option, made: Schedule) -> datetime | None:
    found = made.opening(option)
    return found.start if found is not None else None


def test_the_opening_of_a_full_cluster_is_that_of_its_rack() -> None:
    index = index_of("a", "a", "b", "b", used=(8, 0, 8))
    grounds = grounds_of([(QUEUE, gang(2))], index)
    takers = with_places((runs(50, "n0"), runs(90, "n2")), (), index, ())
    made = calendar(grounds, free_of(grounds, index, ()), takers, NOW, shelves_of(grounds, index))
    option = option_of(there(), gang(2), 3600, grounds)
    assert option is not None
    assert starts_of(option, Schedule({ONPREM: made}, NOW)) == NOW + timedelta(seconds=50)
