"""Jobs that come and go: of all classes, deleted, suspended, raised in priority, taken away a while after they end."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.fleet import LocalFleet
from tests.fleet.processes import FleetError
from tests.local.observer import HUB, Key, Observer, WorkloadSeen
from tests.loops.jobs import B200, H100, H200, L40S, RTX, gang, rollouts_and_learner

RATE_S = 1.0
"""From one job to the next: below what MultiKueue's remote clients bear (kueue-contract section 1)."""
MOST_OPEN = 40
"""Jobs that have not ended; beyond that, none is added. A burst may exceed it."""
BURST, BURST_EVERY_S = 40, 300.0
KEPT_S = 60.0
"""How long an ended job stays on the hub: its Workloads would otherwise grow without end, and the daemon with them."""
SUSPENDED_S = 15.0
STUCK_S = 90.0
"""An eviction that still holds its quota after this is stuck in Kueue: the hub's Job counts pods of a copy that is gone
(the daemon's finding `eviction-stuck`). The churn then does what the finding tells an operator to do."""
DELETED, SUSPENDED, RAISED = 0.06, 0.06, 0.06
MIX = (
    ("autonomy", H100, 1, "training"),
    ("autonomy", H100, 2, "training"),
    ("autonomy", H200, 1, "evaluation"),
    ("autonomy", H200, 2, "training"),
    ("autonomy", B200, 1, "training"),
    ("simulation", RTX, 1, "simulation"),
    ("simulation", RTX, 2, "reinforcement-learning"),
    ("simulation", L40S, 1, "simulation"),
    ("flywheel", L40S, 1, "data-processing"),
    ("autonomy", H100, 1, "interactive"),
)
RAISED_PRODUCT = RTX
"""Priorities are changed on this product alone: a change may end in a preemption, which the plain sum of promised GPUs
does not know, so that the bound is judged on all other products."""


@dataclass(slots=True)
class Fate:
    """What became of one job. `settled` = nothing more is expected of it on the hub."""

    key: Key
    kind: str
    workload_class: str
    product: str
    deleted: bool = False
    suspended_until_s: float | None = None
    evicted_since_s: float | None = None
    ended_s: float | None = None
    removed: bool = False


@dataclass(slots=True)
class Churn:
    """Runs in a thread of its own until told to stop; an API that is away costs it a turn, not its life."""

    fleet: LocalFleet
    observer: Observer
    seed: int
    fates: dict[Key, Fate] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    _numbered: int = 0
    creating: threading.Event = field(default_factory=threading.Event)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self.creating.set()
        self._thread = threading.Thread(target=self._run, name="churn", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=30)

    def open(self) -> list[Fate]:
        """Jobs of which an end is still expected."""
        return [fate for fate in list(self.fates.values()) if fate.ended_s is None and not fate.deleted]

    def _run(self) -> None:
        dice, burst_s = random.Random(self.seed), time.monotonic() + BURST_EVERY_S / 2
        while not self._stop.wait(RATE_S * dice.uniform(0.5, 1.5)):
            with suppress(FleetError):
                self._look()
                self._tidy()
            if not self.creating.is_set():
                continue
            count = 1 if len(self.open()) < MOST_OPEN else 0
            if time.monotonic() > burst_s:
                count, burst_s = BURST, time.monotonic() + BURST_EVERY_S
            for _ in range(count):
                with suppress(FleetError):
                    self._create(dice)
            with suppress(FleetError):
                self._disturb(dice)

    def _create(self, dice: random.Random) -> None:
        # A number is never used again: a creation without an answer may have been made all the same.
        number, self._numbered = self._numbered, self._numbered + 1
        namespace, product, gpus, workload_class = MIX[number % len(MIX)]
        name, duration = f"soak-{number:05d}", f"{dice.randint(2, 25)}s"
        manifest = gang(name, gpus=gpus, product=product, namespace=namespace, duration=duration)
        if number % 40 == 39:
            manifest, namespace, workload_class = rollouts_and_learner(name), "simulation", "reinforcement-learning"
        manifest["metadata"]["labels"]["entrepot.dev/workload-class"] = workload_class
        fate = Fate((namespace, name), manifest["kind"], workload_class, product)
        with self.fleet.hub.api() as api:
            api.request("POST", _path(fate, ""), manifest)
        self.fates[fate.key] = fate
        self.counts["created"] += 1

    def _disturb(self, dice: random.Random) -> None:
        """One of those that still run or wait is deleted, suspended for a while, or given another priority."""
        chosen = dice.random()
        kinds = ((DELETED, self._delete), (SUSPENDED, self._suspend), (RAISED, self._raise))
        for share, act in kinds:
            if chosen < share:
                fit = [f for f in self.open() if f.kind == "Job" and f.suspended_until_s is None]
                if act == self._raise:
                    fit = [f for f in fit if f.product == RAISED_PRODUCT]
                if fit:
                    act(dice.choice(fit))
                return
            chosen -= share

    def _delete(self, fate: Fate) -> None:
        with self.fleet.hub.api() as api:
            api.request("DELETE", _path(fate), {"propagationPolicy": "Background"})
        fate.deleted = fate.removed = True
        self.counts["deleted"] += 1

    def _suspend(self, fate: Fate) -> None:
        self._activate(fate, False)
        fate.suspended_until_s = time.monotonic() + SUSPENDED_S
        self.counts["suspended"] += 1

    def _raise(self, fate: Fate) -> None:
        with self.fleet.hub.api() as api:
            label = {"kueue.x-k8s.io/priority-class": "release-gate"}
            api.merge_patch(_path(fate), {"metadata": {"labels": label}})
        self.counts["raised"] += 1

    def _activate(self, fate: Fate, active: bool) -> None:
        with self.fleet.hub.api() as api:
            path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{fate.key[0]}/workloads"
            for workload in api.request("GET", path)["items"]:
                owners: list[dict[str, Any]] = workload["metadata"].get("ownerReferences") or []
                if any(owner["name"] == fate.key[1] for owner in owners):
                    api.merge_patch(f"{path}/{workload['metadata']['name']}", {"spec": {"active": active}})

    def _look(self) -> None:
        """Note who has ended, and let the suspended go on."""
        now_s = time.monotonic()
        for change in self.observer.newest(HUB, "workloads"):
            seen = change.seen
            assert isinstance(seen, WorkloadSeen)
            fate = self.fates.get((change.key[0], seen.job))
            if fate is not None and seen.finished and fate.ended_s is None:
                fate.ended_s = now_s
                self.counts["finished"] += 1
            if fate is not None and fate.ended_s is None:
                self._mend(fate, seen.evicted and seen.reserved, now_s)
        for fate in self.open():
            if fate.suspended_until_s is not None and fate.suspended_until_s < now_s:
                self._activate(fate, True)
                fate.suspended_until_s = None

    def _mend(self, fate: Fate, stuck: bool, now_s: float) -> None:
        if not stuck:
            fate.evicted_since_s = None
        elif fate.evicted_since_s is None:
            fate.evicted_since_s = now_s
        elif now_s - fate.evicted_since_s > STUCK_S and fate.kind == "Job":
            with self.fleet.hub.api() as api:
                api.merge_patch(f"{_path(fate)}/status", {"status": {"active": 0, "ready": 0}})
            fate.evicted_since_s = None
            self.counts["mended"] += 1

    def _tidy(self) -> None:
        now_s = time.monotonic()
        for fate in list(self.fates.values()):
            if fate.ended_s is not None and not fate.removed and now_s - fate.ended_s > KEPT_S:
                with self.fleet.hub.api() as api:
                    api.request("DELETE", _path(fate), {"propagationPolicy": "Background"})
                fate.removed = True


def _path(fate: Fate, name: str | None = None) -> str:
    group = {"Job": "batch/v1", "JobSet": "jobset.x-k8s.io/v1alpha2"}[fate.kind]
    last = fate.key[1] if name is None else name
    return f"/apis/{group}/namespaces/{fate.key[0]}/{fate.kind.lower()}s" + (f"/{last}" if last else "")
