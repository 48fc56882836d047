"""What may be concluded from silence, look by look."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.footing import TOGETHER_S, Footing, Mode, Sight, step, together
from dispatcher.core.ids import ClusterName
from dispatcher.core.snapshot import Link
from tests.builders import START
from tests.examples import examples

QUIET_S, MOST = 60, 50
NAMES = tuple(ClusterName(f"w{n}") for n in range(6))
MINUTE = 60


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


class Story:
    """Looks in a row by one replica; everything is well unless a look says otherwise."""

    def __init__(self) -> None:
        self.footing = Footing()

    def look(
        self, seconds: float, lost: Mapping[ClusterName, Link] | None = None, hub: Link = Link.CONNECTED, term: int = 1
    ) -> Footing:
        links = {name: (lost or {}).get(name, Link.CONNECTED) for name in NAMES}
        # A cluster that went silent was last heard of one silence limit ago; one that is blind never was.
        heard = {Link.CONNECTED: at(seconds), Link.STALE: at(seconds - QUIET_S), Link.BLIND: None}
        clusters = {name: (link, heard[link]) for name, link in links.items()}
        self.footing = step(self.footing, Sight(hub, clusters, term, at(seconds)), QUIET_S, MOST)
        return self.footing

    def steady(self) -> Story:
        self.look(0)
        assert self.look(QUIET_S + 1).mode is Mode.STEADY
        return self


def away(*names: ClusterName, link: Link = Link.BLIND) -> dict[ClusterName, Link]:
    return dict.fromkeys(names, link)


def test_a_start_warms_for_one_quiet_period() -> None:
    story = Story()
    assert story.look(0).mode is Mode.WARMING
    assert story.look(QUIET_S).mode is Mode.WARMING
    assert story.look(QUIET_S + 1).mode is Mode.STEADY


def test_fr_rac_02_a_minute_after_an_hour_without_the_hub_no_loss_counts() -> None:
    """Six clusters, all silent as long as the hub was: the clocks begin when it is seen again."""
    story = Story().steady()
    for minute in range(2, 62):
        assert story.look(minute * MINUTE, away(*NAMES), hub=Link.STALE).mode is Mode.BLIND
    back = 62 * MINUTE
    assert story.look(back, away(*NAMES)).mode is Mode.WARMING
    assert story.look(back + MINUTE, away(*NAMES)).mode in (Mode.WARMING, Mode.FROZEN)
    assert set(story.footing.lost.values()) == {at(back)}
    for minute in range(2, 60):
        assert story.look(back + minute * MINUTE, away(*NAMES)).mode is Mode.FROZEN
        assert story.footing.lost_for_s(NAMES[0], at(back + minute * MINUTE)) is None


def test_fr_rac_02_a_new_leader_starts_all_clocks_anew() -> None:
    story = Story().steady()
    story.look(100, away(NAMES[0]))
    assert story.look(1000, away(NAMES[0])).lost_for_s(NAMES[0], at(1000)) == 900
    assert story.look(1001, away(NAMES[0]), term=2).mode is Mode.WARMING
    assert story.look(1001 + QUIET_S, away(NAMES[0]), term=2).lost_for_s(NAMES[0], at(1061)) is None
    assert story.look(1062, away(NAMES[0]), term=2).lost_for_s(NAMES[0], at(1062)) == 61


@pytest.mark.parametrize(("count", "mode"), [(1, Mode.STEADY), (3, Mode.STEADY), (4, Mode.FROZEN), (6, Mode.FROZEN)])
def test_fr_rac_02_more_than_half_of_the_fleet_at_once_is_taken_for_our_own_fault(count: int, mode: Mode) -> None:
    story = Story().steady()
    assert story.look(200, away(*NAMES[:count], link=Link.STALE)).mode is mode


def test_clusters_that_go_hours_apart_did_not_go_together() -> None:
    story = Story().steady()
    for number in range(1, 6):
        found = story.look(number * 2 * TOGETHER_S, away(*NAMES[:number]))
        assert found.mode is Mode.STEADY, f"{number} lost"


def test_a_fleet_that_is_back_from_a_freeze_warms_and_starts_the_clocks_of_what_is_still_lost() -> None:
    story = Story().steady()
    story.look(200, away(*NAMES))
    story.look(5000, away(*NAMES))
    found = story.look(5001, away(NAMES[0]))
    assert (found.mode, found.lost) == (Mode.WARMING, {NAMES[0]: at(5001)})


def test_a_clock_begins_when_the_cluster_was_last_heard_of() -> None:
    story = Story().steady()
    found = story.look(300, away(NAMES[0], link=Link.STALE))
    assert found.lost_for_s(NAMES[0], at(300)) == QUIET_S


def test_a_cluster_that_is_back_for_a_moment_starts_anew() -> None:
    """FR-RAC-04: what was lost before has nothing to do with what is lost now."""
    story = Story().steady()
    story.look(100, away(NAMES[0]))
    story.look(900)
    assert story.look(901, away(NAMES[0], link=Link.STALE)).lost_for_s(NAMES[0], at(901)) == QUIET_S


looks = st.lists(
    st.tuples(
        st.integers(1, 400),
        st.frozensets(st.sampled_from(NAMES)),
        st.sampled_from((Link.CONNECTED, Link.CONNECTED, Link.CONNECTED, Link.STALE)),
        st.integers(1, 2),
    ),
    max_size=30,
)


@examples(200)
@given(looks)
def test_no_loss_counts_for_longer_than_anybody_has_looked(
    story_of: list[tuple[int, frozenset[ClusterName], Link, int]],
) -> None:
    """Whatever happens: a clock is never older than the last blindness, the last change of leader, or the loss."""
    story, now, sighted_since, sighted, term_before = Story(), 0, 0, dict.fromkeys(NAMES, 0), None
    for passed, lost, hub, term in story_of:
        now += passed
        found = story.look(now, away(*lost), hub, term)
        if hub is not Link.CONNECTED:
            sighted_since, term_before = now, None
        elif term != term_before:
            sighted_since, term_before = now, term
        for name in NAMES:
            if name not in lost:
                sighted[name] = now
            lost_s = found.lost_for_s(name, at(now))
            assert lost_s is None or lost_s <= now - max(sighted_since, sighted[name])
            assert lost_s is None or name in lost
            assert lost_s is None or now - sighted_since > QUIET_S
        if found.mode is not Mode.BLIND and together(found.lost.values()) * 100 > MOST * len(NAMES):
            assert found.mode is not Mode.STEADY
