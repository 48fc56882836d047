"""structlog, set up once: one JSON object a line on stderr. Events are snake_case constants, detail is in keys."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

_SECRET_PARTS = ("token", "password", "secret_value", "authorization", "kubeconfig_data", "private_key")


def _redact(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """A last net: values under keys that look like secrets never reach a log, whoever put them there."""
    for key in event:
        if any(part in key.lower() for part in _SECRET_PARTS):
            event[key] = "[redacted]"
    return event


def configure(level: str = "info") -> None:
    """Set up logging for the process. Raises ValueError for a level that does not exist."""
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"log level {level!r} does not exist: use debug, info, warning or error")
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(message)s")
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _redact,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(sort_keys=True),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )


def get_logger() -> structlog.typing.FilteringBoundLogger:
    """The process's logger."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return logger
