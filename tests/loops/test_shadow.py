"""A candidate bundle beside the live one, and live rules on trial: counted once, told, and without any effect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from dispatcher.app.shadow import ShadowFolder
from dispatcher.core.decision import Decision
from dispatcher.core.impact import Effect
from dispatcher.core.policy import Policy
from dispatcher.core.waiting import Phase
from dispatcher.loops import shadow
from dispatcher.loops.shadow import ShadowLoop
from dispatcher.runtime import Health
from residency.bundle import bundle_of
from residency.rules import Rule
from residency.vocabulary import Effect as RuleEffect
from residency.vocabulary import Flow, Mode
from tests.loops.bench import CONFIG, Bench, start
from tests.loops.lawful import RULE, forbidden, permitted, reader

Offer = Policy | tuple[str, ...] | Exception | None


@dataclass
class Offers:
    """A source that gives what a test puts there, once."""

    waiting: list[Offer] = field(default_factory=list)

    async def poll(self) -> Policy | tuple[str, ...] | None:
        found = self.waiting.pop(0) if self.waiting else None
        if isinstance(found, Exception):
            raise found
        return found


def beside(bench: Bench, *offers: Offer) -> tuple[ShadowLoop, Offers]:
    health, source = Health(bench.clock), Offers(list(offers))
    health.register(shadow.LOOP, 60.0)
    return ShadowLoop(bench.state, source, bench.metrics, health), source


def counted(bench: Bench, would: str, rule: str = RULE) -> float:
    return float(bench.metrics.shadow_differences.labels(would, rule)._value.get())


async def placed(bench: Bench) -> Bench:
    bench.state.policy = permitted()
    bench.fleet.submit(reader("job", duration="14400s"))
    await bench.until(lambda: bench.phase("job") is Phase.PLACED)
    return bench


async def test_a_candidate_is_counted_once_a_workload_and_difference(bench: Bench) -> None:
    await placed(bench)
    loop, _ = beside(bench, forbidden())
    for _ in range(4):
        await bench.step()
        await loop.look()
    assert counted(bench, "newly-denied-running") == 1
    assert bench.state.shadow.candidate == forbidden().residency.digest
    only = bench.state.shadow.beside
    assert [one.change.effects for one in only if one.change] == [(Effect.DENIED_RUNNING, Effect.NARROWED)]
    gauge = bench.metrics.shadow_open.labels("newly-denied-running")
    assert gauge._value.get() == 1


async def test_another_candidate_is_counted_anew_and_the_same_rules_differ_in_nothing(bench: Bench) -> None:
    await placed(bench)
    loop, source = beside(bench, forbidden())
    await loop.look()
    source.waiting += [permitted()]
    await loop.look()
    assert bench.state.shadow.beside == ()
    source.waiting += [forbidden()]
    await loop.look()
    assert counted(bench, "newly-denied-running") == 2


async def test_a_candidate_that_is_not_valid_leaves_the_last_one_and_says_why(bench: Bench) -> None:
    await placed(bench)
    loop, source = beside(bench, forbidden())
    await loop.look()
    source.waiting += [("rules.yaml:1:1: error: broken",)]
    await loop.look()
    assert bench.state.shadow.errors == ("rules.yaml:1:1: error: broken",)
    assert len(bench.state.shadow.beside) == 1
    assert bench.metrics.shadow_refused._value.get() == 1


async def test_a_failure_is_counted_and_the_next_look_is_made(bench: Bench) -> None:
    await placed(bench)
    broken = replace(forbidden(), clusters={})
    loop, source = beside(bench, OSError("disk"), replace(broken, queues=None), forbidden())  # type: ignore[arg-type]
    await loop.look()
    assert bench.state.shadow.failures == 1
    await loop.look()
    await loop.look()
    assert bench.state.shadow.failures >= 1
    assert counted(bench, "newly-denied-running") == 1
    assert not source.waiting


def trial(mode: Mode) -> Policy:
    """The live rules with a forbid on trial that would deny internal data everywhere."""
    policy = permitted()
    rule = Rule("on-trial", ("internal",), (Flow.PROCESS,), RuleEffect.FORBID, mode=mode)
    return replace(policy, residency=bundle_of(replace(policy.residency, rules=(*policy.residency.rules, rule))))


@pytest.mark.parametrize("mode", [Mode.WARN, Mode.SHADOW])
async def test_res_21_a_rule_on_trial_would_have_denied_and_denies_nothing(bench: Bench, mode: Mode) -> None:
    bench.state.policy = trial(mode)
    bench.fleet.submit(reader("job", duration="14400s"))
    await bench.until(lambda: bench.phase("job") is Phase.PLACED)
    loop, _ = beside(bench)
    await loop.look()
    await loop.look()
    assert counted(bench, f"would-deny-{mode.value}", "on-trial") == 1
    assert [(t.rule, t.mode) for one in bench.state.shadow.beside for t in one.trials] == [("on-trial", mode)]


async def decisions(path: Path, offers: Sequence[Offer], *, mirrored: bool) -> list[Decision]:
    bench = await start(path, policy=permitted())
    loop, _ = beside(bench, *offers)
    for name in ("a", "b", "c"):
        bench.fleet.submit(reader(name, duration="14400s"))
        await bench.step()
        if mirrored:
            await loop.look()
    for _ in range(3):
        await bench.step()
        if mirrored:
            await loop.look()
    found = [bench.state.latest[uid] for uid in sorted(bench.state.latest)]
    await bench.store.close()
    return found


@pytest.mark.parametrize("offer", [forbidden(), ("broken",), OSError("disk")], ids=["stricter", "invalid", "failing"])
async def test_no_decision_knows_of_a_shadow(tmp_path: Path, offer: Offer) -> None:
    for name in ("plain", "mirrored"):
        (tmp_path / name).mkdir()
    plain = await decisions(tmp_path / "plain", [], mirrored=False)
    assert len(plain) == 3
    assert await decisions(tmp_path / "mirrored", [offer], mirrored=True) == plain


async def test_the_folder_of_a_candidate_is_read_as_a_whole_or_not_at_all(bench: Bench, tmp_path: Path) -> None:
    found = await ShadowFolder(CONFIG, bench.clock).poll()
    assert isinstance(found, Policy)
    missing = await ShadowFolder(tmp_path / "nowhere", bench.clock).poll()
    assert isinstance(missing, tuple)
    assert missing
