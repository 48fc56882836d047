"""Two daemons, one fleet, one store: one leads, the other is warm, and no hand-over leaves a gap or makes a double."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from dispatcher.core.decision import Decision
from dispatcher.core.errors import Transient
from dispatcher.core.ids import DecisionId
from dispatcher.core.ports import Intent, IntentState, Nomination
from dispatcher.core.snapshot import Hold
from dispatcher.core.waiting import Phase
from dispatcher.store import SqlStore, open_store
from tests.loops.bench import start
from tests.loops.jobs import B200, H100, gang
from tests.loops.replicas import TIMING, Pair, Replica
from tests.loops.test_crash import Fuse, FusedStore, Killed
from tests.postgres import PostgresServer
from tests.store_files import asked, limit_pages

pytestmark = pytest.mark.slow

JOBS = ("train-a", "train-b", "train-c", "train-d")
PRODUCTS = (H100, B200, B200, H100)


async def make_pair(folder: Path, target: str | None = None) -> tuple[Pair, list[SqlStore]]:
    await asyncio.to_thread(folder.mkdir, exist_ok=True)
    pair = Pair(await start(folder))
    stores = [await open_store(target or folder / "entrepot.sqlite") for _ in range(2)]
    for name, store in zip(("one", "two"), stores, strict=True):
        pair.join(name, store)
    await pair.until(lambda: pair.leader() is not None, 5.0)
    await pair.step()
    return pair, stores


async def close(pair: Pair, stores: Sequence[SqlStore]) -> None:
    for store in (*stores, pair.bench.store):
        await store.close()


@pytest.fixture
async def pair(target: str, tmp_path: Path) -> AsyncIterator[Pair]:
    """On SQLite and on PostgreSQL."""
    made, stores = await make_pair(tmp_path, target)
    yield made
    await close(made, stores)


@pytest.fixture
async def file_pair(tmp_path: Path) -> AsyncIterator[Pair]:
    made, stores = await make_pair(tmp_path)
    yield made
    await close(made, stores)


def submit(pair: Pair, *names: str, **more: Any) -> None:
    for name in names:
        product = PRODUCTS[JOBS.index(name)] if name in JOBS else H100
        pair.bench.fleet.submit(gang(name, product=product, **more))


async def test_the_leader_dispatches_and_the_standby_writes_nothing_and_knows_the_same(pair: Pair) -> None:
    one, two = pair.replicas["one"], pair.replicas["two"]
    submit(pair, *JOBS, duration="30s")
    pair.bench.fleet.submit(gang("too-large", pods=16))
    pair.bench.fleet.submit(gang("wrong", says={"datasets": "radar-2062"}))
    await pair.until(lambda: all(pair.bench.phase(job) is Phase.PLACED for job in JOBS))
    for _ in range(3):
        await pair.step()
    assert {who for who, _ in pair.log} == {"one"}
    assert one.state.latest
    assert two.state.latest.keys() == one.state.latest.keys()
    for uid, decision in one.state.latest.items():
        stored = two.state.latest[uid]
        assert (stored.outcome, stored.chosen, stored.attempt) == (decision.outcome, decision.chosen, decision.attempt)
    assert two.state.problems == one.state.problems
    assert one.state.problems
    assert two.state.holds == one.state.holds


async def test_an_orderly_hand_over_takes_two_seconds_and_loses_nothing(pair: Pair) -> None:
    submit(pair, "train-a", "train-b")
    await pair.step()
    one = pair.replicas["one"]
    await one.elector.resign()
    one.alive = False
    submit(pair, "train-c", "train-d")
    assert await pair.until(lambda: pair.leader() is pair.replicas["two"], 5.0) <= 2.0
    await pair.until(pair.bench.finished(*JOBS))
    assert pair.doubled() == {}


async def test_after_a_kill_the_standby_takes_over_within_the_duration_of_the_lease(pair: Pair) -> None:
    submit(pair, "train-a", "train-b")
    await pair.step()
    pair.replicas["one"].alive = False
    submit(pair, "train-c", "train-d")
    assert await pair.until(lambda: pair.leader() is not None, 20.0) <= TIMING.duration_s + 1
    await pair.until(pair.bench.finished(*JOBS))
    assert pair.doubled() == {}
    assert pair.leaders_seen == ["one", "two"]


async def test_a_leader_cut_off_from_the_hub_stops_and_the_other_goes_on(file_pair: Pair) -> None:
    """Its views may still look fresh: it stops because it cannot renew."""
    file_pair.replicas["one"].port.link_up = False
    await file_pair.until(lambda: file_pair.leader() is None, 12.0)
    submit(file_pair, *JOBS)
    await file_pair.until(lambda: file_pair.leader() is file_pair.replicas["two"], 10.0)
    file_pair.replicas["one"].port.link_up = True
    await file_pair.until(file_pair.bench.finished(*JOBS))
    assert {who for who, _ in file_pair.log} == {"two"}
    assert file_pair.doubled() == {}


# --- a kill at every durable step, with a standby that is warm ----------------------------------------------------


@dataclass(slots=True)
class FusedNominations:
    """The real hub; the process dies at the fuse's step."""

    hub: Any
    fuse: Fuse

    async def nominate(self, nomination: Nomination) -> str:
        self.fuse.before_step()
        version: str = await self.hub.nominate(nomination)
        self.fuse.after_step()
        return version

    def __getattr__(self, name: str) -> Any:
        return getattr(self.hub, name)


async def run_into(pair: Pair, fuse: Fuse) -> bool:
    """Run until every job is finished; the first leader dies where the fuse burns, and is not seen again."""
    one = pair.replicas["one"]
    one.dispatch.store = FusedStore(one.store, fuse)  # type: ignore[assignment]
    one.state.hub.hub = FusedNominations(one.state.hub.hub, fuse)  # type: ignore[attr-defined]
    burnt = False
    done = pair.bench.finished(*JOBS)
    for _ in range(150):
        if done():
            return burnt
        try:
            await pair.step()
        except BaseException as gone:
            if not _killed(gone):
                raise
            burnt, one.alive = True, False
    raise AssertionError(f"not finished: {pair.bench.phases()}")


def _killed(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_killed(inner) for inner in error.exceptions)
    return isinstance(error, Killed)


@pytest.mark.parametrize("after", [False, True], ids=["before the step", "after the step"])
async def test_a_leader_killed_at_every_step_is_replaced_without_a_gap_or_a_double(tmp_path: Path, after: bool) -> None:
    whole = Fuse(at=-1, after=False)
    for at in range(-1, 1000):
        if at >= 0 and at >= whole.count:
            break
        pair, stores = await make_pair(tmp_path / f"{at}")
        submit(pair, *JOBS)
        await run_into(pair, Fuse(at, after) if at >= 0 else whole)
        await pair.until(lambda pair=pair: pair.leader() is not None)  # type: ignore[misc]
        await pair.step()
        await pair.step()
        assert pair.doubled() == {}, f"killed at step {at}"
        assert await stores[1].intents(IntentState.PLANNED) == (), f"killed at step {at}"
        assert await stores[1].holds() == (), f"killed at step {at}"
        assert pair.bench.fleet.refused_latches == 0
        await close(pair, stores)
    assert whole.count >= 3 * len(JOBS), "a whole run has steps to die at"


# --- a leader that was only asleep --------------------------------------------------------------------------------


@dataclass(slots=True)
class Gate:
    """Holds calls back until it is opened: a process that was stopped in their middle."""

    inner: Any
    call: str
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name != self.call:
            return found

        async def held(*arguments: Any) -> Any:
            self.reached.set()
            await self.opened.wait()
            return await found(*arguments)

        return held


async def asleep_in(pair: Pair, call: str, *, resigned: bool = False) -> tuple[asyncio.Task[float], Gate]:
    """The leader stops in the middle of a call of store or hub, and the other takes over."""
    one = pair.replicas["one"]
    if call == "nominate":
        gate = Gate(one.state.hub.hub, call)  # type: ignore[attr-defined]
        one.state.hub.hub = gate  # type: ignore[attr-defined]
    else:
        gate = Gate(one.store, call)
        one.dispatch.store = gate
    submit(pair, "train-a")
    one.alive = False  # the stepping leaves it alone; its turn runs below
    for _ in range(3):
        pair.bench.clock.advance(1.0)
        pair.bench.fleet.advance()
    turn = asyncio.create_task(one.dispatch.turn())
    await asyncio.wait_for(gate.reached.wait(), 10)
    if resigned:
        await one.elector.resign()
    await pair.until(lambda: pair.leader() is pair.replicas["two"], 20.0)
    return turn, gate


async def test_fr_rac_05_a_commit_of_a_leader_that_slept_is_fenced_by_the_store(pair: Pair) -> None:
    turn, gate = await asleep_in(pair, "commit")
    await pair.until(pair.bench.finished("train-a"))
    gate.opened.set()
    await turn
    assert [who for who, _ in pair.log] == ["two"]
    assert pair.doubled() == {}
    assert len([d for d in await pair.replicas["two"].store.recent() if d.chosen]) == 1
    assert pair.replicas["one"].elector.term == 0


async def test_fr_rac_05_a_write_of_a_leader_that_slept_is_refused_by_the_hub(pair: Pair) -> None:
    turn, gate = await asleep_in(pair, "nominate")
    await pair.until(lambda: len(pair.log) == 1, 40.0)
    gate.opened.set()
    await turn
    await pair.until(pair.bench.finished("train-a"))
    assert [who for who, _ in pair.log] == ["two"]
    assert pair.doubled() == {}


@pytest.mark.parametrize("call", ["mark", "release"])
async def test_fr_rac_05_what_a_leader_that_slept_would_close_is_left_to_who_leads_now(pair: Pair, call: str) -> None:
    """It slept while it settled what its view had answered; the other has settled it since, and begun the next."""
    one, two = pair.replicas["one"], pair.replicas["two"]
    gate = Gate(one.store, call)
    one.dispatch.store = gate
    submit(pair, "train-a", duration="10s")
    one.alive = False
    turning = asyncio.create_task(_turns(one, gate, pair))
    await asyncio.wait_for(turning, 20)
    turn = turning.result()
    await pair.until(lambda: pair.leader() is two, 40.0)
    submit(pair, "train-b", duration="9000s")
    await pair.until(lambda: pair.bench.phase("train-b") is Phase.PLACED)
    gate.opened.set()
    await turn
    assert one.elector.term == 0, "it knows now"
    assert not one.leads
    await pair.until(pair.bench.finished("train-a"))
    assert pair.doubled() == {}


async def _turns(one: Replica, gate: Gate, pair: Pair) -> asyncio.Task[float]:
    """The leader's turns, one after the other, until one of them stops in the gate; returns that one."""
    while True:
        pair.bench.clock.advance(1.0)
        pair.bench.fleet.advance()
        await one.elector.turn()
        turn = asyncio.create_task(one.dispatch.turn())
        reached = asyncio.create_task(gate.reached.wait())
        await asyncio.wait({turn, reached}, return_when=asyncio.FIRST_COMPLETED)
        if gate.reached.is_set():
            return turn
        reached.cancel()


async def test_a_write_that_was_under_way_at_the_hand_over_is_waited_for(pair: Pair) -> None:
    """It arrives before the new leader has given it up: one nomination, by the old one, and no second."""
    turn, gate = await asleep_in(pair, "nominate", resigned=True)
    for _ in range(3):
        await pair.step()
    assert pair.log == []
    gate.opened.set()
    await turn
    await pair.until(pair.bench.finished("train-a"))
    assert [who for who, _ in pair.log] == ["one"]
    assert pair.doubled() == {}


# --- the world is not well -----------------------------------------------------------------------------------------


LONG = JOBS[:3]


async def placed(pair: Pair, duration: str = "7200s") -> dict[str, str]:
    """Long jobs run, and nothing is in flight; returns their versions on the hub."""
    submit(pair, *LONG, duration=duration)
    await pair.until(lambda: all(pair.bench.phase(job) is Phase.PLACED for job in LONG))
    for _ in range(30):
        await pair.step()
    return versions(pair)


def versions(pair: Pair) -> dict[str, str]:
    return {job: pair.bench.workload(job).resource_version for job in LONG}


async def test_fr_rac_02_after_an_hour_without_the_hub_nothing_that_runs_is_touched(file_pair: Pair) -> None:
    before = await placed(file_pair)
    file_pair.bench.fleet.break_link("hub")
    for replica in file_pair.replicas.values():
        replica.port.link_up = False
    for _ in range(60):
        await file_pair.step(60.0)
        assert file_pair.leader() is None or file_pair.bench.clock.monotonic_s() < 200
    written = len(file_pair.log)
    file_pair.bench.fleet.mend_link("hub")
    for replica in file_pair.replicas.values():
        replica.port.link_up = True
    await file_pair.until(lambda: file_pair.leader() is not None, 25.0)
    for _ in range(60):
        await file_pair.step()
    assert len(file_pair.log) == written
    assert versions(file_pair) == before
    assert {len(where) for where in file_pair.bench.seen_copies.values()} == {1}


async def test_a_short_loss_of_a_worker_changes_no_leader_and_writes_nothing(file_pair: Pair) -> None:
    """FR-RAC-04 itself is in test_losses.py: these two watch no copies."""
    before = await placed(file_pair, "86400s")
    for _ in range(9):
        await file_pair.step(3600.0)
    await file_pair.until(lambda: file_pair.leader() is not None, 25.0)
    before, written, leases = versions(file_pair), len(file_pair.log), file_pair.leaders_seen[:]
    for name in file_pair.bench.fleet.workers:
        file_pair.bench.fleet.break_link(name)
        for _ in range(8):
            await file_pair.step()
        file_pair.bench.fleet.mend_link(name)
        await file_pair.step()
    assert (len(file_pair.log), file_pair.leaders_seen) == (written, leases)
    assert versions(file_pair) == before


async def test_fr_rac_08_with_every_worker_lost_the_leader_holds_and_nothing_fails(file_pair: Pair) -> None:
    before = await placed(file_pair)
    file_pair.bench.fleet.submit(gang("train-late", pods=2, product=B200))
    await file_pair.until(lambda: file_pair.bench.phase("train-late") is Phase.WAITING, 10.0)
    await file_pair.step()
    written, one = len(file_pair.log), file_pair.replicas["one"]
    recorded = len(await one.store.recent(1000))
    for name in file_pair.bench.fleet.workers:
        file_pair.bench.fleet.break_link(name)
    for _ in range(150):
        await file_pair.step()
    assert one.leads
    assert len(file_pair.log) == written
    assert versions(file_pair) == before
    late = one.state.latest[file_pair.bench.workload("train-late").uid]
    assert late.chosen is None
    assert len(late.candidates) == len(file_pair.bench.fleet.workers), "lost clusters stay listed"
    assert len(await one.store.recent(1000)) - recorded <= 3, "a wait for the same reason is no storm"
    for name in file_pair.bench.fleet.workers:
        file_pair.bench.fleet.mend_link(name)
    file_pair.bench.fleet.submit(gang("train-next"))
    await file_pair.until(file_pair.bench.finished("train-next"))
    assert versions(file_pair) == before


@dataclass(slots=True)
class Unreachable:
    """The real store; while `away` nothing reaches it."""

    store: SqlStore
    away: bool = False
    attempts: int = 0

    async def commit(self, decision: Decision, hold: Hold | None, intent: Intent | None, *more: Any) -> None:
        self._reach()
        await self.store.commit(decision, hold, intent, *more)

    async def mark(self, decision: DecisionId, state: IntentState, now: datetime, term: int | None = None) -> None:
        self._reach()
        await self.store.mark(decision, state, now, term)

    def _reach(self) -> None:
        self.attempts += 1
        if self.away:
            raise Transient("store: gone")

    def __getattr__(self, name: str) -> Any:
        self._reach()
        return getattr(self.store, name)


async def test_a_store_that_goes_away_stops_new_nominations_and_nothing_else(file_pair: Pair) -> None:
    one: Replica = file_pair.replicas["one"]
    store = Unreachable(one.store)
    one.dispatch.store = store  # type: ignore[assignment]
    submit(file_pair, "train-a", duration="40s")
    await file_pair.until(lambda: file_pair.bench.phase("train-a") is Phase.PLACED)
    await file_pair.step()
    store.away = True
    submit(file_pair, "train-b", "train-c")
    for _ in range(25):
        await file_pair.step()
    assert one.leads
    assert [file_pair.bench.phase(job) for job in ("train-b", "train-c")] == [Phase.WAITING, Phase.WAITING]
    assert file_pair.bench.phase("train-a") is Phase.PLACED
    assert one.dispatch.store_away_since_s is not None
    store.away = False
    await file_pair.until(file_pair.bench.finished("train-a", "train-b", "train-c"))
    assert one.dispatch.store_away_since_s is None
    assert file_pair.doubled() == {}


async def test_a_full_disk_stops_new_nominations_and_nothing_else(tmp_path: Path) -> None:
    """SQLite at its page limit is what a full disk is."""
    pair, stores = await make_pair(tmp_path)
    submit(pair, "train-a", duration="60s")
    await pair.until(lambda: pair.bench.phase("train-a") is Phase.PLACED)
    for _ in range(3):
        await pair.step()
    used = await asked(stores[0], "PRAGMA page_count")
    limit_pages(stores[0], used)
    pair.replicas["two"].alive = False  # its own connections have room: it must not help out
    jobs = [f"train-{n}" for n in range(8)]
    submit(pair, *jobs)
    for _ in range(10):
        await pair.step()
    waiting = [job for job in jobs if pair.bench.phase(job) is Phase.WAITING]
    assert waiting
    assert pair.replicas["one"].leads
    assert pair.bench.phase("train-a") is Phase.PLACED
    limit_pages(stores[0], used + 100_000)
    await pair.until(pair.bench.finished("train-a", *jobs))
    assert pair.doubled() == {}
    await close(pair, stores)


async def test_a_database_that_restarts_is_waited_for_and_found_again(tmp_path: Path, postgres: PostgresServer) -> None:
    """Every session is ended by the server, as in a restart or a fail-over."""
    import psycopg

    url = postgres.database()
    pair, stores = await make_pair(tmp_path, url)
    submit(pair, "train-a", "train-b", duration="20s")
    await pair.until(lambda: pair.bench.phase("train-a") is Phase.PLACED)
    for _ in range(4):
        with psycopg.connect(postgres.url("postgres"), autocommit=True) as raw:
            raw.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [url[-10:]])
            raw.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [url.rpartition("/")[2]]
            )
        await pair.step()
    submit(pair, "train-c", "train-d")
    await pair.until(pair.bench.finished(*JOBS))
    assert pair.doubled() == {}
    await close(pair, stores)


async def test_a_store_that_was_restored_from_an_old_copy_doubles_nothing(tmp_path: Path) -> None:
    """docs/operate.md: what happened since the copy is missing in the history, and nowhere else."""
    from dispatcher.store import copy_store

    pair, stores = await make_pair(tmp_path)
    submit(pair, "train-a", duration="60s")
    await pair.step()
    await copy_store(tmp_path / "entrepot.sqlite", tmp_path / "backup.sqlite")
    await pair.until(lambda: pair.bench.phase("train-a") is Phase.PLACED)
    submit(pair, "train-b", duration="60s")
    await pair.until(lambda: pair.bench.phase("train-b") is Phase.PLACED)
    for replica in pair.replicas.values():
        replica.alive = False
    await pair.step(30.0)
    restored = [await open_store(tmp_path / "backup.sqlite") for _ in range(2)]
    for name, store in zip(("three", "four"), restored, strict=True):
        pair.join(name, store)
    submit(pair, "train-c", "train-d")
    await pair.until(pair.bench.finished(*JOBS))
    assert pair.doubled() == {}
    assert await restored[0].intents(IntentState.PLANNED) == ()
    await close(pair, [*stores, *restored])
