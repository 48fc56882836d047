"""Laws of what changes by time alone: shares that fade are kept up, and reservations stand until they say they turn."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core import fading
from dispatcher.core.backfill import Amounts, Ask, Release, Schedule, calendar_of, expected_end
from dispatcher.core.decision import Basis
from dispatcher.core.fading import Fading
from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.resources import Resources
from dispatcher.core.shares import Usage, Window, shares
from tests.core_builders import GPU, NOW
from tests.examples import examples
from tests.property.test_order_laws import CLUSTERS, after, amounts, lines, usages

# --- shares ------------------------------------------------------------------------------------------------------


@examples(150)
@given(
    st.lists(st.tuples(usages(), st.integers(0, 300)), max_size=8),
    st.lists(st.integers(0, 4000), min_size=1, max_size=5),
    st.integers(1, 700),
)
def test_what_is_kept_up_is_what_adding_up_gives(found: list[tuple[Usage, int]], looks: list[int], half: int) -> None:
    """Uses begin, and are noted with their end or without, before and between looks that lie minutes or days apart."""
    fleet, window = Resources.of({GPU: 64, "cpu": 64}), Window(half)
    kept, told, at = Fading(window, after(-77)), list[Usage](), 0
    for number, wait in enumerate(looks):
        at += wait
        for usage, _ in found[number :: len(looks)]:
            kept.add(usage)
            told.append(usage)
        for place, usage in enumerate(told):
            if usage.ended_at is None and (place + number) % 3 == 0:
                kept.end(usage, after(at))
                told[place] = replace(usage, ended_at=max(usage.begun_at, after(at)))
        now = kept.shares(fleet, after(at))
        anew = shares(told, fleet, window, after(at))
        assert {team: share for team, share in now.items() if share.share_ppm} == {
            team: share for team, share in anew.items() if share.share_ppm
        }


@examples(60)
@given(st.lists(usages(), max_size=8), st.integers(1, 500), st.integers(1, 500), st.integers(0, 4000))
def test_with_another_half_life_the_same_use_counts(found: list[Usage], half: int, other: int, later: int) -> None:
    fleet, kept = Resources.of({GPU: 64, "cpu": 64}), Fading(Window(10**6 + half), NOW)
    for usage in found:
        kept.add(usage)
    kept.shares(fleet, NOW)
    anew = kept.in_window(Window(other)).shares(fleet, after(later))
    expected = shares(found, fleet, Window(other), after(later))
    assert all(anew[team] == share for team, share in expected.items() if share.share_ppm)


def test_beyond_its_bound_the_oldest_is_forgotten_as_if_the_window_began_later(monkeypatch: Any) -> None:
    monkeypatch.setattr(fading, "MOST_MARKS", 8)
    fleet, gpu = Resources.of({GPU: 8}), Resources.of({GPU: 1})
    kept = Fading(Window(10**6), NOW)
    long = Usage("long", gpu, after(0))
    runs = [Usage("team", gpu, after(10 * at), after(10 * at + 5)) for at in range(6)]
    for usage in (long, *runs):
        kept.add(usage)
    assert kept.shares(fleet, after(100)) == shares((long, *runs), fleet, Window(10**6), after(100))

    clipped = [replace(long, begun_at=after(10)), *runs[1:]]  # what began at 0, ended at 5 and began at 10 is forgotten
    assert kept.shares(fleet, after(100)) == shares(clipped, fleet, Window(10**6), after(100))


# --- backfill ----------------------------------------------------------------------------------------------------

takers = st.lists(st.tuples(st.integers(-400, 0), st.integers(1, 500), amounts), max_size=5)
"""(begun, expected to last, what comes back)"""
busy = st.fixed_dictionaries({cluster: st.tuples(amounts, takers) for cluster in CLUSTERS})
Busy = dict[ClusterName, tuple[Amounts, list[tuple[int, int, Amounts]]]]


def planned(world: Busy, line: list[Ask], former: dict[WorkloadUid, ClusterName], now: datetime) -> Schedule:
    calendars = {}
    for cluster, (free, running) in world.items():
        ends = [(*expected_end(after(begun), lasts, now), given) for begun, lasts, given in running]
        found = [Release(at, given, Basis.DECLARED, overdue) for at, overdue, given in ends]
        until = min((release.at for release in found), default=None)
        calendars[cluster] = replace(calendar_of(free, found, now), until=until)
    made = Schedule(calendars, now, former)
    for ask in line:
        made.reserve(ask)
    return made


@examples(300)
@given(
    busy, lines(), st.dictionaries(st.sampled_from([f"w{at}" for at in range(6)]), st.sampled_from(CLUSTERS)), st.data()
)
def test_until_it_turns_the_same_is_reserved(
    world: Busy, line: list[Ask], former: dict[str, ClusterName], data: st.DataObject
) -> None:
    stood = {WorkloadUid(uid): cluster for uid, cluster in former.items()}
    made = planned(world, line, stood, NOW)
    until = made.until()
    last = int((until - NOW).total_seconds() * 10**6) - 1 if until is not None else 10**12
    later = NOW + timedelta(microseconds=data.draw(st.integers(0, last) | st.just(last)))
    assert planned(world, line, stood, later).reservations() == made.reservations()
