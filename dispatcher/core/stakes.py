"""What the hub knows of work that runs and that a decision might stop.

A worker shows who holds its quota and since when; of which class that is and how often it saves its work stands on the
job object, which only the hub has. What cannot be read there counts as not said, as in bids.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from dispatcher.core.bids import keys_of, plan_of
from dispatcher.core.decision import Candidate
from dispatcher.core.declaration import PREFIX
from dispatcher.core.literals import LiteralError, parse_duration
from dispatcher.core.policy import Policy
from dispatcher.core.snapshot import HubView, Stake
from dispatcher.core.workload import HubWorkload, OwnerMeta

_CHECKPOINT, _INTERVAL = f"{PREFIX}checkpoint", f"{PREFIX}checkpoint-interval"


def stakes_of(
    candidates: Iterable[Candidate], ours: Mapping[str, HubWorkload], hub: HubView, policy: Policy
) -> dict[str, Stake]:
    """Of everybody of ours who would be stopped by one of these starts. `ours`: the hub's workloads by their key."""
    keys = {victim.key for candidate in candidates for victim in candidate.preempts if victim.ours}
    found = {key: ours[key] for key in sorted(keys) if key in ours}
    return {key: stake_of(workload, _owner(workload, hub), policy) for key, workload in found.items()}


def _owner(workload: HubWorkload, hub: HubView) -> OwnerMeta | None:
    return hub.owners.get(workload.owner.uid) if workload.owner is not None else None


def stake_of(workload: HubWorkload, owner: OwnerMeta | None, policy: Policy) -> Stake:
    """Who names no store for checkpoints keeps none that another cluster could go on from."""
    keys = keys_of(workload, owner)
    plan = plan_of(workload, keys, policy)
    interval = plan.checkpoint_interval_s if plan is not None else None
    if (said := keys.get(_INTERVAL)) is not None:
        with suppress(LiteralError):  # its owner was told by build_request
            interval = parse_duration(said)
    return Stake(plan.workload_class if plan is not None else None, interval if _CHECKPOINT in keys else None)
