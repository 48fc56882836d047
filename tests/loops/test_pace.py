"""Ends, withdrawals and amendments on a hub that does not take them: asked for ever more rarely, and never given up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from dispatcher.core.errors import Conflict, Refused, Transient
from dispatcher.core.footing import Mode
from dispatcher.core.ports import HubPort
from dispatcher.core.waiting import Phase
from dispatcher.loops import watch_copies
from residency.vocabulary import Running
from tests.loops import lawful, notebooks
from tests.loops.bench import Bench, start
from tests.loops.jobs import B200, gang, notebook
from tests.loops.lawful import forbidden, permitted, reader
from tests.loops.notebooks import NOTICE_S, TIMEOUT_S
from tests.loops.test_endings import answer_budget, approved
from tests.loops.test_losses import MOVES, with_rule
from tests.loops.test_watch_copies import Watched, nominate_by_hand, watch, without_policy  # noqa: F401 - a fixture

DENIALS = {
    "403": Refused("quiet hours"),
    "422, as an admission policy says it": Conflict("quiet hours"),
    "no answer": Transient("gone"),
}
each_denial = pytest.mark.parametrize("error", DENIALS.values(), ids=DENIALS.keys())
LOOK_S, MINUTE_S = 0.2, 60
MOST = 9
"""At once, at the next look, and then after 1, 2, 4 ... 30 s: in a minute eight times."""


@dataclass(slots=True)
class Denying:
    """The real hub, which takes no write but nominations while `error` stands, and counts what it was asked."""

    hub: HubPort
    error: Exception | None
    asked: list[str] = field(default_factory=list)
    takes_s: float = 0.0
    bench: Bench | None = None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.hub, name)
        if name not in ("withdraw", "evict", "amend"):
            return found

        async def asked(what: Any, *more: Any) -> Any:
            self.asked.append(what.name)
            if self.bench is not None:
                sick = {loop.name for loop in self.bench.dispatch.health.sick()}
                assert watch_copies.LOOP not in sick, "who asks lives"
                self.bench.clock.advance(self.takes_s)
            if self.error is not None:
                raise self.error
            return await found(what, *more)

        return asked


def denying(bench: Bench, error: Exception) -> Denying:
    found = Denying(bench.state.hub, error)
    bench.state.hub = found  # type: ignore[assignment]
    return found


@pytest_asyncio.fixture(autouse=True)
async def _closed() -> AsyncIterator[None]:
    yield
    await lawful.close_all()
    await notebooks.close_all()


async def asked_in_a_minute(hub: Denying, step: Callable[[], Awaitable[None]], done: Callable[[], bool]) -> None:
    """Looks five times a second, as a busy fleet makes a loop do; then the hub takes it, and it is done soon."""
    for _ in range(round(MINUTE_S / LOOK_S)):
        await step()
    assert 4 <= len(hub.asked) <= MOST, f"asked {len(hub.asked)} times"
    assert not done()
    hub.error = None
    for _ in range(round(40 / LOOK_S)):
        await step()
    assert done()


@each_denial
async def test_an_end_that_the_hub_denies(bench: Bench, error: Exception) -> None:
    watched = watch(bench)
    await approved(watched, "train-a")
    await watched.until(lambda: bool(bench.workload("train-a").nominated), step_s=0.02)
    hub = denying(bench, error)
    answer_budget(watched, "train-a", "Pending")
    await asked_in_a_minute(hub, watched.step, lambda: not bench.workload("train-a").nominated)


@each_denial
async def test_a_withdrawal_that_the_hub_denies(without_policy: Watched, error: Exception) -> None:  # noqa: F811
    """Of a nomination to a cluster that nobody has."""
    bench = without_policy.bench
    for _ in range(8):
        await without_policy.step(10.0)
    assert bench.state.footing.mode is Mode.STEADY
    await nominate_by_hand(without_policy, "train-a")
    hub = denying(bench, error)
    await asked_in_a_minute(hub, without_policy.step, lambda: "cloud-z" not in bench.workload("train-a").nominated)


@each_denial
async def test_an_end_by_law_that_the_hub_denies(tmp_path: Path, error: Exception) -> None:
    found = await lawful.lawful(tmp_path, permitted(Running.STOP_NOW))
    found.bench.fleet.submit(reader("train-a", "90000s"))
    await found.until("train-a", Phase.PLACED)
    await found.steps(3)
    hub = denying(found.bench, error)
    found.rule(forbidden(Running.STOP_NOW))
    await asked_in_a_minute(hub, lambda: found.step(LOOK_S), lambda: found.bench.phase("train-a") is not Phase.PLACED)


@each_denial
async def test_a_notice_that_the_hub_denies(tmp_path: Path, error: Exception) -> None:
    found = await notebooks.notebooks(tmp_path)
    found.bench.fleet.submit(notebook("nb"))
    await found.until("nb", Phase.PLACED)
    await found.steps(2)
    found.watched("nb", used_s=0)
    hub = denying(found.bench, error)
    await found.step(TIMEOUT_S)

    async def step() -> None:
        found.watched("nb")
        await found.step(LOOK_S)

    await asked_in_a_minute(hub, step, lambda: found.bench.workload("nb").idle_notice != "")
    assert await found.log() == ["notice"], "on record once, however often it was tried"
    assert found.bench.phase("nb") is Phase.PLACED
    assert NOTICE_S > 40


async def test_who_asks_a_slow_hub_for_many_ends_is_not_taken_for_dead(tmp_path: Path) -> None:
    """A cluster is away and its work is to move; the hub takes fifteen seconds for each answer."""
    bench = await start(tmp_path, policy=with_rule(MOVES))
    watched, jobs = watch(bench), [f"train-{number:02d}" for number in range(6)]
    for name in jobs:
        bench.fleet.submit(gang(name, pods=1, gpus=1, product=B200, duration="90000s"))
    await watched.until(lambda: all(bench.phase(name) is Phase.PLACED for name in jobs))
    for _ in range(8):
        await watched.step(10.0)
    (away,) = {bench.workload(name).cluster_name for name in jobs}
    assert away is not None
    bench.fleet.silence(away)
    hub = Denying(bench.state.hub, None, takes_s=15.0, bench=bench)
    bench.state.hub = hub  # type: ignore[assignment]
    for _ in range(17 * 6):
        await watched.step(10.0)
        if hub.asked:
            break
    assert sorted(hub.asked) == sorted(bench.workload(name).name for name in jobs), "all of them in one look"
    await bench.store.close()
