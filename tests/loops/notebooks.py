"""A bench with notebooks: a dispatch loop and an idle loop on the embedded fleet, and somebody who watches them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from dispatcher.core.audit import AuditKind
from dispatcher.core.idle import Stage, stamp
from dispatcher.core.policy import Policy
from dispatcher.core.workload import WorkloadClass
from dispatcher.loops import idle
from dispatcher.loops.idle import IdleLoop
from dispatcher.runtime import Waker
from tests.loops.bench import Bench, example, start
from tests.loops.beside import Beside, Cycles

TIMEOUT_S, NOTICE_S = 600, 120
NAMESPACE = "notebooks"


def patient(timeout_s: int | None = TIMEOUT_S) -> Policy:
    """The example blueprint with an idle timeout that a test can wait for; None: without any."""
    policy, _ = example()
    brief = WorkloadClass.INTERACTIVE
    plan = replace(policy.classes[brief], idle_timeout_s=timeout_s, idle_notice_s=NOTICE_S)
    queues = {name: replace(queue, idle_timeout_s=None) for name, queue in policy.queues.items()}
    return replace(policy, digest=f"idle-{timeout_s}", classes={**policy.classes, brief: plan}, queues=queues)


@dataclass(slots=True)
class IdleBench(Beside):
    """`bench` with an idle loop beside dispatch, one cycle each a step."""

    bench: Bench
    loop: IdleLoop = field(init=False)

    def __post_init__(self) -> None:
        self.wire()

    def second(self) -> Cycles:
        return self.loop

    def wire(self) -> None:
        """A new idle loop, as after a restart."""
        bench = self.bench
        health = bench.dispatch.health
        health.register(idle.LOOP, 60.0)
        waker = Waker(bench.clock)
        self.loop = IdleLoop(bench.state, bench.store.audit_log, bench.notices, bench.metrics, health, waker)

    def now(self) -> datetime:
        return self.bench.clock.now()

    def watched(self, name: str, used_s: float | None = None) -> None:
        """Somebody looks at a notebook, and saw it used so many seconds ago; None: not since the last word of it."""
        said = {"entrepot.dev/activity-checked": stamp(self.now())}
        if used_s is not None:
            said["entrepot.dev/last-activity"] = stamp(self.now() - timedelta(seconds=used_s))
        self.bench.fleet.annotate("Job", NAMESPACE, name, said)

    async def log(self) -> list[str]:
        """What the audit log, which must hold, says was done with idle work."""
        return [dict(entry.detail)["course"] for entry in await self.entries() if entry.kind is AuditKind.IDLE]

    def stage(self, job: str) -> Stage | None:
        found = self.bench.state.idle.get(self.bench.workload(job).uid)
        return found.stage if found is not None else None

    def writes(self, course: str, result: str = "written") -> float:
        return float(self.bench.metrics.idle_writes.labels(course, result)._value.get())

    def told(self, job: str) -> list[str]:
        """Reasons of the Events on its idleness, each as often as it stands there."""
        reasons = ("IdleNotice", "IdleNoticeCancelled", "FreedAsIdle")
        return [reason for reason, _ in self.bench.events(job) if reason in reasons]


OPEN: list[IdleBench] = []


async def notebooks(path: Path, policy: Policy | None = None) -> IdleBench:
    """A bench on a new fleet; the test's fixture closes it."""
    found = IdleBench(await start(path, policy=policy or patient()))
    OPEN.append(found)
    return found


async def close_all() -> None:
    while OPEN:
        await OPEN.pop().bench.store.close()
