"""What the hub knows of work that runs and that a decision might stop.

A worker shows who holds its quota and since when; of which class that is and how often it saves its work stands on the
job object, which only the hub has. What cannot be read there counts as not said, as in bids.py.

What an owner says (`Said`) and what follows from it by the rules (`Stake`) are apart, so that a decision on a snapshot
file, under an edited blueprint too, tells the same as the daemon would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from dispatcher.core.bids import class_said, keys_of, plan_for
from dispatcher.core.decide import decide
from dispatcher.core.decision import Candidate, Decision
from dispatcher.core.declaration import PREFIX
from dispatcher.core.ids import QueueName
from dispatcher.core.literals import LiteralError, parse_duration
from dispatcher.core.memo import CandidateMemo
from dispatcher.core.policy import Policy
from dispatcher.core.snapshot import HubView, Snapshot, Stake
from dispatcher.core.workload import HubWorkload, Request, WorkloadClass

_CHECKPOINT, _INTERVAL = f"{PREFIX}checkpoint", f"{PREFIX}checkpoint-interval"


@dataclass(frozen=True, slots=True)
class Said:
    """What the hub has of a workload's owner, as far as a stake depends on it. Who names no store for checkpoints keeps
    none that another cluster could go on from."""

    workload_class: WorkloadClass | None = None
    queue: QueueName | None = None
    keeps_checkpoints: bool = False
    interval_s: int | None = None


def stakes_of(candidates: Iterable[Candidate], said: Callable[[str], Said | None], policy: Policy) -> dict[str, Stake]:
    """Of everybody of ours who would be stopped by one of these starts. `said`: of the hub's workload with a key."""
    keys = sorted({victim.key for candidate in candidates for victim in candidate.preempts if victim.ours})
    known = ((key, said(key)) for key in keys)
    return {key: stake_of(found, policy) for key, found in known if found is not None}


def said_of(workload: HubWorkload, hub: HubView) -> Said:
    owner = hub.owners.get(workload.owner.uid) if workload.owner is not None else None
    keys = keys_of(workload, owner)
    interval = None
    if (written := keys.get(_INTERVAL)) is not None:
        with suppress(LiteralError):  # its owner was told by build_request
            interval = parse_duration(written)
    return Said(class_said(keys), workload.cluster_queue, _CHECKPOINT in keys, interval)


def stake_of(said: Said, policy: Policy) -> Stake:
    """Where an owner says no interval, it is that of the class."""
    plan = plan_for(said.workload_class, said.queue, policy)
    interval = said.interval_s if said.interval_s is not None or plan is None else plan.checkpoint_interval_s
    return Stake(plan.workload_class if plan is not None else None, interval if said.keeps_checkpoints else None)


def running_of(hub: HubView, snapshot: Snapshot) -> dict[str, Said]:
    """Of every workload of the hub that a cluster of the snapshot has a copy of: whoever might be stopped there."""
    views = [cluster.worker for cluster in snapshot.clusters if cluster.worker is not None]
    there = {f"{namespace}/{name}" for view in views for (namespace, name), copy in view.copies.items() if copy.ours}
    alive = {workload.key: workload for workload in hub.workloads.values() if not workload.finished}
    return {key: said_of(alive[key], hub) for key in sorted(there & alive.keys())}


def decide_knowing(
    request: Request,
    snapshot: Snapshot,
    policy: Policy,
    now: datetime,
    running: Mapping[str, Said],
    memo: CandidateMemo | None = None,
) -> Decision:
    """Decide; and where that may stop some of ours, once more with what is known of them, as the daemon does.

    Raises:
        ValueError: as `decide` does.
    """
    decision = decide(request, snapshot, policy, now, memo)
    stakes = stakes_of(decision.candidates, running.get, policy)
    return decide(request, replace(snapshot, stakes=stakes), policy, now, memo) if stakes else decision
