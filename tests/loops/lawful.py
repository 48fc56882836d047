"""A bench with laws that change: small bundles, a dispatch loop and a legality loop on the embedded fleet."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from dispatcher.core.policy import Policy
from dispatcher.loops import legality
from dispatcher.loops.legality import LegalityLoop
from dispatcher.runtime import Waker
from dispatcher.state import BundleEvent
from residency.bundle import Bundle, Settings, bundle_of
from residency.clauses import Clause, Group, Operator, Quantifier
from residency.exceptions import Scope, Waiver
from residency.rules import Exceptable, Rule
from residency.vocabulary import Effect, Flow, OnChange, Queued, Running
from tests.builders import START, Manifest
from tests.loops.bench import Bench, example, start
from tests.loops.beside import Beside, Cycles
from tests.loops.jobs import H100, gang

EVERYWHERE = ("DE", "FI", "FR", "US")
NOWHERE = ("JP",)
RULE = "internal-by-country"


def internal(countries: tuple[str, ...], change: OnChange | None = None) -> Rule:
    """Internal data may be used in some countries, and what a change of that does to work that is there."""
    return Rule(
        RULE,
        ("internal",),
        tuple(sorted(Flow)),
        Effect.PERMIT,
        (Group(Quantifier.ALL, (Clause("destination.country", Operator.IN, tuple(sorted(countries))),)),),
        exceptable=Exceptable(("data-office",)),
        on_change=change or OnChange(),
    )


def law(*rules: Rule, settings: Settings | None = None, waivers: tuple[Waiver, ...] = ()) -> Policy:
    """The example blueprint under other rules."""
    policy, _ = example()
    bundle = bundle_of(Bundle(rules=rules, settings=settings or Settings(), exceptions=waivers))
    return replace(policy, digest=bundle.digest, residency=bundle)


def permitted(running: Running = Running.DRAIN, queued: Queued = Queued.REQUEUE) -> Policy:
    return law(internal(EVERYWHERE, OnChange(running, 0, queued)))


def forbidden(running: Running = Running.DRAIN, queued: Queued = Queued.REQUEUE) -> Policy:
    return law(internal(NOWHERE, OnChange(running, 0, queued)))


def waiver(hours: int) -> Waiver:
    """An exception for the jobs' queue on one cluster."""
    scope = Scope(queues=("autonomy-training",), clusters=("onprem-eu",))
    end = START + timedelta(hours=hours)
    return Waiver("w", (RULE,), scope, "r", "T-1", "asker", "granter", "data-office", START - timedelta(days=1), end)


def reader(name: str, duration: str = "600s", product: str = H100) -> Manifest:
    """A job that reads internal data."""
    return gang(name, product=product, duration=duration, says={"datasets": "radar-2026"})


@dataclass(slots=True)
class LawBench(Beside):
    """`bench` with a legality loop beside dispatch, one cycle each a step."""

    bench: Bench
    loop: LegalityLoop = field(init=False)

    def __post_init__(self) -> None:
        self.wire()

    def second(self) -> Cycles:
        return self.loop

    def wire(self) -> None:
        """A new legality loop, as after a restart."""
        bench = self.bench
        health = bench.dispatch.health
        health.register(legality.LOOP, 60.0)
        audit, waker = bench.store.audit_log, Waker(bench.clock)
        self.loop = LegalityLoop(bench.state, audit, bench.notices, bench.metrics, health, waker)

    def rule(self, policy: Policy) -> None:
        """Other rules arrive, as the reload loop swaps them in."""
        self.bench.state.policy = policy
        self.bench.state.bundle_events.append(BundleEvent(self.bench.clock.now(), policy))

    def ended(self) -> float:
        """Attempts whose end was asked for."""
        return float(self.bench.metrics.law_evictions.labels("asked")._value.get())

    def codes(self) -> list[str]:
        return [finding.code.value for finding in self.bench.state.law_findings]


OPEN: list[LawBench] = []


async def lawful(path: Path, policy: Policy) -> LawBench:
    """A bench on a new fleet; the test's fixture closes it."""
    found = LawBench(await start(path, policy=policy))
    OPEN.append(found)
    return found


async def close_all() -> None:
    while OPEN:
        await OPEN.pop().bench.store.close()
