"""The rules of the Lease, one row a rule, and the elector that carries them out, against a Lease in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from connectors.embedded.clock import ManualClock, settle
from connectors.embedded.lease import EmbeddedLease, EmbeddedLeasePort
from connectors.kubernetes.lease import lease_body, lease_record
from dispatcher.core.errors import Fatal, Fenced, Refused, Transient
from dispatcher.core.lease import (
    ABSENT,
    ALLOWED,
    Always,
    LeaseRecord,
    LeaseTiming,
    Move,
    Role,
    Tenure,
    after_failure,
    after_read,
    after_write,
    next_move,
    rested,
    to_write,
)
from dispatcher.leader import LOOP, Candidacy, Elector, identity
from dispatcher.metrics import Metrics
from dispatcher.runtime import Health
from tests.builders import START

TIMING = LeaseTiming(15, 10.0, 2.0)
ME, OTHER = "me", "other"


def lease(holder: str, version: str = "7", duration_s: int = 15, term: int = 3) -> LeaseRecord:
    return LeaseRecord(holder, duration_s, term, version)


def tenure(role: Role, seen: LeaseRecord | None, **more: float) -> Tenure:
    return replace(Tenure(ME, TIMING), role=role, seen=seen, **more)


MOVES: dict[str, tuple[Tenure, float, bool, Move]] = {
    "our own lease is renewed": (tenure(Role.LEADING, lease(ME)), 0, True, Move.RENEW),
    "our own lease is renewed when we were unsure": (tenure(Role.UNSURE, lease(ME)), 90, True, Move.RENEW),
    "a lease that names us after a lost reply is renewed": (tenure(Role.STANDBY, lease(ME)), 0, True, Move.RENEW),
    "our own lease is given up when we cannot work": (tenure(Role.LEADING, lease(ME)), 0, False, Move.GIVE_UP),
    "a released lease is taken at once": (tenure(Role.STANDBY, lease("")), 0, True, Move.TAKE),
    "a released lease is not taken by who cannot work": (tenure(Role.STANDBY, lease("")), 0, False, Move.NOTHING),
    "a released lease is left to others while we rest": (
        tenure(Role.RESTING, lease(""), rest_until_s=4.0),
        3.9,
        True,
        Move.NOTHING,
    ),
    "after our rest it is taken": (tenure(Role.RESTING, lease(""), rest_until_s=4.0), 4.0, True, Move.TAKE),
    "another's lease is left alone": (tenure(Role.STANDBY, lease(OTHER)), 14.9, True, Move.NOTHING),
    "a silent holder is replaced after the duration": (tenure(Role.STANDBY, lease(OTHER)), 15.0, True, Move.TAKE),
    "a holder's longer duration is honoured": (
        tenure(Role.STANDBY, lease(OTHER, duration_s=40)),
        39.9,
        True,
        Move.NOTHING,
    ),
    "a holder's shorter duration does not shorten ours": (
        tenure(Role.STANDBY, lease(OTHER, duration_s=1)),
        14.9,
        True,
        Move.NOTHING,
    ),
    "a silent holder is not replaced by who cannot work": (
        tenure(Role.STANDBY, lease(OTHER)),
        99,
        False,
        Move.NOTHING,
    ),
    "an absent lease is waited for like a silent holder": (tenure(Role.STANDBY, ABSENT), 14.9, True, Move.NOTHING),
    "an absent lease is made after the duration": (tenure(Role.STANDBY, ABSENT), 15.0, True, Move.TAKE),
    "without having looked nothing is done": (tenure(Role.UNKNOWN, None), 99, True, Move.NOTHING),
}


@pytest.mark.parametrize(("known", "now_s", "fit", "move"), MOVES.values(), ids=MOVES.keys())
def test_what_is_done_with_the_lease(known: Tenure, now_s: float, fit: bool, move: Move) -> None:
    assert next_move(known, now_s, fit=fit) is move


READS: dict[str, tuple[Tenure, LeaseRecord, float, Role, float]] = {
    "the first look starts the holder's time": (tenure(Role.UNKNOWN, None), lease(OTHER), 50.0, Role.STANDBY, 50.0),
    "a renewal starts it anew": (
        tenure(Role.STANDBY, lease(OTHER), changed_at_s=40.0, read_at_s=49.0),
        lease(OTHER, "8"),
        50.0,
        Role.STANDBY,
        50.0,
    ),
    "silence does not": (
        tenure(Role.STANDBY, lease(OTHER), changed_at_s=40.0, read_at_s=49.0),
        lease(OTHER),
        50.0,
        Role.STANDBY,
        40.0,
    ),
    "our own blindness starts it anew (FR-RAC-02)": (
        tenure(Role.STANDBY, lease(OTHER), changed_at_s=40.0, read_at_s=41.0),
        lease(OTHER),
        60.0,
        Role.STANDBY,
        60.0,
    ),
    "who sees another's name stops leading": (
        tenure(Role.LEADING, lease(ME), read_at_s=49.0),
        lease(OTHER, "8"),
        50.0,
        Role.STANDBY,
        50.0,
    ),
    "who sees the lease gone stops leading": (
        tenure(Role.LEADING, lease(ME), read_at_s=49.0),
        ABSENT,
        50.0,
        Role.STANDBY,
        50.0,
    ),
}


@pytest.mark.parametrize(("known", "seen", "at_s", "role", "changed_s"), READS.values(), ids=READS.keys())
def test_what_a_look_tells(known: Tenure, seen: LeaseRecord, at_s: float, role: Role, changed_s: float) -> None:
    found = after_read(known, seen, at_s)
    assert (found.role, found.changed_at_s, found.read_at_s, found.seen) == (role, changed_s, at_s, seen)
    assert role in ALLOWED[known.role]


def test_time_to_lead_runs_from_the_sending_and_ends_before_another_may_take() -> None:
    leading = after_write(tenure(Role.STANDBY, lease("")), Move.TAKE, lease(ME, "8"), sent_s=100.0, received_s=104.0)
    assert leading.may_write(109.9)
    assert not leading.may_write(110.0)
    assert after_failure(leading, 109.9).role is Role.LEADING
    assert after_failure(leading, 110.0).role is Role.UNSURE
    assert after_failure(leading, 110.0).term == 0


def test_a_new_leader_has_a_higher_term_than_any_that_lease_or_store_has_seen() -> None:
    known = tenure(Role.STANDBY, lease("", term=3))
    assert to_write(known, Move.TAKE, 0, START).transitions == 4
    assert to_write(known, Move.TAKE, 9, START).transitions == 10
    assert to_write(tenure(Role.STANDBY, ABSENT), Move.TAKE, 9, START).transitions == 10
    assert to_write(tenure(Role.LEADING, lease(ME, term=4)), Move.RENEW, 0, START).transitions == 4


def test_who_gave_it_up_rests_and_may_not_write() -> None:
    found = rested(tenure(Role.LEADING, lease(ME), sent_at_s=10.0), 11.0)
    assert (found.role, found.rest_until_s, found.may_write(11.0)) == (Role.RESTING, 15.0, False)


BAD_TIMES = {
    "no room for a second try": (15, 3.0, 2.0),
    "no room before others take it": (15, 13.0, 2.0),
    "no pause": (15, 10.0, 0.0),
}


@pytest.mark.parametrize(("duration", "deadline", "retry"), BAD_TIMES.values(), ids=BAD_TIMES.keys())
def test_times_that_allow_two_leaders_are_refused(duration: int, deadline: float, retry: float) -> None:
    with pytest.raises(ValueError, match="must"):
        LeaseTiming(duration, deadline, retry)


def test_a_daemon_that_runs_alone_leads_and_ends_when_it_is_not_alone() -> None:
    alone = Always(3)
    assert alone.may_write(0.0)
    with pytest.raises(Fatal) as caught:
        alone.lost("term 4 has begun")
    assert "--ha" in caught.value.fix


def test_names_of_two_lives_of_one_pod_differ() -> None:
    assert identity() != identity()


# --- the object on the hub -----------------------------------------------------------------------------------------


def test_a_lease_is_written_and_read_as_the_api_has_it() -> None:
    record = LeaseRecord("pod-a_1_x", 15, 4, "12", START, START + timedelta(milliseconds=1500))
    body = lease_body("entrepot-system", "entrepot", record, {"labels": {"kept": "yes"}})
    assert body["metadata"] == {
        "namespace": "entrepot-system",
        "name": "entrepot",
        "labels": {"kept": "yes"},
        "resourceVersion": "12",
    }
    assert body["spec"]["renewTime"].endswith(".500000Z")
    assert lease_record(body) == record


def test_a_released_lease_and_one_with_odd_fields_read_as_free() -> None:
    body = {"metadata": {"resourceVersion": "3"}, "spec": {"leaseTransitions": -2, "leaseDurationSeconds": "x"}}
    assert lease_record(body) == LeaseRecord("", 0, 0, "3")
    with pytest.raises(Refused):
        lease_record({"spec": {}})


# --- the elector ---------------------------------------------------------------------------------------------------


@dataclass
class TermsInMemory:
    """The store's part in it."""

    begun: int = 0
    holder: str = ""
    away: bool = False

    async def term(self) -> int:
        self._reach()
        return self.begun

    async def lead(self, term: int, holder: str, now: datetime) -> None:
        self._reach()
        if (term, holder) != (self.begun, self.holder) and term <= self.begun:
            raise Fenced(f"term {self.begun} has begun")
        self.begun, self.holder = term, holder

    def _reach(self) -> None:
        if self.away:
            raise Transient("the store is away")


@dataclass
class JumpingClock:
    """A clock whose wall jumps as it likes; only `monotonic_s` and `sleep` are true."""

    clock: ManualClock
    offset: timedelta = timedelta()

    def now(self) -> datetime:
        return self.clock.now() + self.offset

    def monotonic_s(self) -> float:
        return self.clock.monotonic_s()

    async def sleep(self, seconds: float) -> None:
        await self.clock.sleep(seconds)


@dataclass
class Replica:
    elector: Elector
    port: EmbeddedLeasePort
    clock: JumpingClock
    fit: bool = True
    task: asyncio.Task[None] | None = None

    @property
    def leads(self) -> bool:
        return self.elector.may_write(self.clock.monotonic_s())


@dataclass
class Election:
    group: asyncio.TaskGroup
    clock: ManualClock = field(default_factory=lambda: ManualClock(START))
    lease: EmbeddedLease = field(default_factory=lambda: EmbeddedLease(LeaseRecord("", 1, 0, "0")))
    terms: TermsInMemory = field(default_factory=TermsInMemory)
    replicas: dict[str, Replica] = field(default_factory=dict)

    def join(self, name: str) -> Replica:
        port, clock = EmbeddedLeasePort(self.lease), JumpingClock(self.clock)
        health = Health(clock)
        health.register(LOOP, 60.0)
        elector = Elector(
            Candidacy(port, name, TIMING), self.terms, clock, Metrics(), health, lambda: made.fit, lambda: None
        )
        made = Replica(elector, port, clock)
        made.task = self.group.create_task(elector.run())
        self.replicas[name] = made
        return made

    async def pass_s(self, seconds: float) -> None:
        """Time passes in small steps; there is never more than one leader."""
        end = self.clock.monotonic_s() + seconds
        while self.clock.monotonic_s() < end:
            await self.clock.run_for(0.25)
            assert len(self.leaders()) <= 1

    async def until_leads(self, name: str, within_s: float) -> float:
        started = self.clock.monotonic_s()
        while self.leaders() != [name]:
            assert self.clock.monotonic_s() - started < within_s, f"{name} does not lead after {within_s} s"
            await self.pass_s(0.25)
        return self.clock.monotonic_s() - started

    def leaders(self) -> list[str]:
        return [name for name, replica in self.replicas.items() if replica.leads]


@pytest.fixture
async def election() -> AsyncIterator[Election]:
    async with asyncio.TaskGroup() as group:
        found = Election(group)
        yield found
        for replica in found.replicas.values():
            assert replica.task is not None
            replica.task.cancel()


async def elected(election: Election) -> tuple[Replica, Replica]:
    one = election.join("one")
    await election.until_leads("one", 2.0)
    two = election.join("two")
    await election.pass_s(20.0)
    assert election.leaders() == ["one"]
    return one, two


async def test_the_first_leads_and_the_second_stands_by(election: Election) -> None:
    one, two = await elected(election)
    assert two.elector.tenure.role is Role.STANDBY
    assert two.elector.holder == "one"
    assert (one.elector.term, two.elector.term, election.terms.begun) == (1, 0, 1)


async def test_an_orderly_end_hands_over_within_two_seconds(election: Election) -> None:
    one, _ = await elected(election)
    assert one.task is not None
    one.task.cancel()
    await settle()
    assert election.lease.record.holder == ""
    assert await election.until_leads("two", 2.1) <= 2.0
    assert election.terms.begun == 2


async def test_a_kill_hands_over_after_the_duration_and_not_sooner(election: Election) -> None:
    one, _ = await elected(election)
    one.port.link_up = False  # nothing is released
    assert one.task is not None
    one.task.cancel()
    await settle()
    taken_s = await election.until_leads("two", 18.0)
    assert 13.0 <= taken_s <= 17.0, "the last renewal may be up to two seconds old"


async def test_fr_rac_05_a_leader_that_is_cut_off_stops_before_another_starts(election: Election) -> None:
    one, _ = await elected(election)
    one.port.link_up = False
    started = election.clock.monotonic_s()
    while one.leads:
        await election.pass_s(0.25)
    stopped_s = election.clock.monotonic_s() - started
    assert 7.0 <= stopped_s <= 10.25
    assert one.elector.tenure.role in (Role.LEADING, Role.UNSURE)
    taken_s = await election.until_leads("two", 10.0) + stopped_s
    assert taken_s - stopped_s >= 3.0
    one.port.link_up = True
    await election.pass_s(20.0)
    assert election.leaders() == ["two"]


async def test_fr_rac_05_a_dead_work_loop_releases_the_lease_within_one_retry_period(election: Election) -> None:
    one, _ = await elected(election)
    one.fit = False
    started = election.clock.monotonic_s()
    while election.lease.record.holder == "one":
        await election.pass_s(0.25)
    assert election.clock.monotonic_s() - started <= TIMING.retry_s + 0.25
    assert await election.until_leads("two", 5.0) <= 2.0
    one.fit = True
    await election.pass_s(20.0)
    assert election.leaders() == ["two"], "who works again does not take it back"


async def test_jumps_of_the_wall_clock_change_nothing(election: Election) -> None:
    one, two = await elected(election)
    writes = election.lease.writes
    for hours in (-48, 48, 0):
        one.clock.offset, two.clock.offset = timedelta(hours=hours), timedelta(hours=-hours)
        await election.pass_s(20.0)
        assert election.leaders() == ["one"]
    assert election.lease.writes - writes <= 32
    assert election.terms.begun == 1


async def test_fr_rac_02_nobody_acts_while_the_hub_is_away_and_the_leader_goes_on_when_it_is_back(
    election: Election,
) -> None:
    one, two = await elected(election)
    one.port.link_up = two.port.link_up = False
    await election.pass_s(11.0)
    assert election.leaders() == []
    await election.pass_s(600.0)
    assert election.leaders() == []
    two.port.link_up = True  # the standby hears of it first, and lets the leader have its time
    await election.pass_s(5.0)
    one.port.link_up = True
    await election.until_leads("one", 3.0)
    await election.pass_s(30.0)
    assert election.leaders() == ["one"]
    assert election.terms.begun == 1


async def test_a_lost_reply_to_the_taking_write_costs_a_turn_and_no_second_term(election: Election) -> None:
    one = election.join("one")
    one.port.lost_replies = 1
    await election.until_leads("one", 5.0)
    assert election.lease.record.transitions == one.elector.term == 1


async def test_a_lost_reply_to_a_renewal_costs_nothing(election: Election) -> None:
    one, _ = await elected(election)
    one.port.lost_replies = 1
    await election.pass_s(30.0)
    assert election.leaders() == ["one"]
    assert one.elector.term == 1


async def test_a_deleted_lease_ends_the_term_and_the_next_one_is_higher(election: Election) -> None:
    await elected(election)
    election.lease.delete()
    await election.pass_s(3.0)
    assert election.leaders() == []
    await election.pass_s(20.0)
    assert len(election.leaders()) == 1
    assert election.terms.begun == 2


async def test_who_cannot_reach_the_store_does_not_stand(election: Election) -> None:
    election.terms.away = True
    election.join("one")
    await election.pass_s(30.0)
    assert election.lease.record.holder == ""
    election.terms.away = False
    await election.until_leads("one", 3.0)


async def test_a_leader_that_the_store_calls_old_takes_a_higher_term(election: Election) -> None:
    """A store that was restored or led by a daemon without --ha knows later terms than the Lease."""
    one, _ = await elected(election)
    election.terms.begun, election.terms.holder = 40, "somebody"
    one.elector.lost("term 40 has begun")
    assert not one.leads
    await election.pass_s(10.0)
    assert len(election.leaders()) == 1
    assert election.terms.begun == 41


async def test_a_lease_that_an_operator_wrote_over_is_respected(election: Election) -> None:
    await elected(election)
    election.lease.record = replace(election.lease.record, holder="maintenance", version="by-hand")
    await election.pass_s(3.0)
    assert election.leaders() == []
    await election.pass_s(10.0)
    assert election.leaders() == []
    await election.pass_s(5.0)
    assert len(election.leaders()) == 1


async def test_three_that_start_at_once_have_one_leader(election: Election) -> None:
    for name in ("a", "b", "c"):
        election.join(name)
    await election.pass_s(5.0)
    assert len(election.leaders()) == 1
    await election.pass_s(60.0)
    assert election.terms.begun == 1
