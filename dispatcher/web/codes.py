"""Codes of answers that are no model: for those who find out, and must not wait for what shows it."""

from __future__ import annotations

from enum import StrEnum


class StateCode(StrEnum):
    """What a workload is doing, from the worker's evidence where there is any, not from what the hub believes."""

    WAITING = "waiting"
    HELD = "held"
    NO_QUOTA = "no-quota"
    OTHER_CHECKS = "other-checks"
    NOMINATED = "nominated"
    QUEUED_ON_WORKER = "queued-on-worker"
    STARTING = "starting"
    RUNNING = "running"
    EVICTED_ON_WORKER = "evicted-on-worker"
    MISSING_ON_WORKER = "missing-on-worker"
    UNSEEN = "unseen"
    FINISHING = "finishing"
    FINISHED = "finished"
    DISPATCH_FAILED = "dispatch-failed"
    """The hub shows Finished, and no pod of it ever ran (FR-RAC-06)."""
    EVICTING = "evicting"
    DELETING = "deleting"
    INACTIVE = "inactive"
    FOLLOWS_ANOTHER = "follows-another"
    NOT_OURS = "not-ours"
    GONE = "gone"
