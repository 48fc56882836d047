"""structlog, set up once: one JSON object a line on stderr. Events are snake_case constants, detail is in keys.

Every warning and every error is counted under its event, so that nothing is wrong that no metric shows: the events are
listed in `PROBLEMS`, and a test holds the list against the code.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import structlog

_SECRET_PARTS = ("token", "password", "secret_value", "authorization", "kubeconfig_data", "private_key")


PROBLEMS = (
    "attempt_not_ended",
    "audit_not_written",
    "blueprint_refused",
    "blueprint_warning",
    "catalog_old",
    "catalog_refused",
    "catalog_unreachable",
    "clock_jumped",
    "clock_went_back",
    "cluster_unreachable",
    "copy_not_stopped",
    "credentials_not_read",
    "credentials_refused",
    "event_refused",
    "finding",
    "fleet_frozen",
    "hub_not_dispatchable",
    "hub_not_reachable",
    "hub_not_rechecked",
    "idle_not_written",
    "illegal",
    "input_problem",
    "inputs_not_kept",
    "intent_left_open",
    "kind_not_allowed",
    "last_good_rules",
    "leader_not_followed",
    "leader_steps_down",
    "lease_not_reached",
    "lease_not_released",
    "lesson_not_kept",
    "loop_failed",
    "nomination_not_cleared",
    "nomination_not_made",
    "nomination_unknown",
    "object_unreadable",
    "owner_kind_not_served",
    "probe_not_deleted",
    "replica_missing",
    "replica_unknown",
    "shadow_failed",
    "shadow_refused",
    "store_away",
    "store_not_pruned",
    "store_not_reachable",
    "store_went_back",
    "token_expiry_unknown",
    "token_not_read",
    "wait_not_recorded",
    "watch_failed",
    "watch_line_unreadable",
)
"""Every event that is logged as a warning or an error: the kinds of `entrepot_problems_total`."""
OTHER = "other"
"""The kind of an event that is not listed: a label must stay bounded."""
_COUNTED = ("warning", "error", "critical")
_sinks: list[Callable[[str], None]] = []


def count_problems(sink: Callable[[str], None]) -> None:
    """From now on `sink` is told the kind of each warning and error. One sink a process: the newest counts."""
    _sinks[:] = [sink]


def _count(_logger: Any, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    if method in _COUNTED:
        kind = event.get("event")
        for sink in _sinks:
            sink(kind if kind in PROBLEMS else OTHER)
    return event


def _redact(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """A last net: values under keys that look like secrets never reach a log, whoever put them there."""
    for key in event:
        if any(part in key.lower() for part in _SECRET_PARTS):
            event[key] = "[redacted]"
    return event


def _quieter_than(number: int) -> structlog.typing.Processor:
    """Drops what is below the level only here, after it was counted: a quiet log hides no number."""

    def drop(_logger: Any, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        if logging.getLevelNamesMapping().get(method.upper(), logging.CRITICAL) < number:
            raise structlog.DropEvent
        return event

    return drop


def configure(level: str = "info") -> None:
    """Set up logging for the process. Raises ValueError for a level that does not exist."""
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"log level {level!r} does not exist: use debug, info, warning or error")
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(message)s")
    structlog.configure(
        processors=[
            _count,
            _quieter_than(number),
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _redact,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(sort_keys=True),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(min(number, logging.WARNING)),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )


def get_logger() -> structlog.typing.FilteringBoundLogger:
    """The process's logger."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return logger
