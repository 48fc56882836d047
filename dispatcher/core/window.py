"""Windows of time in which the facts of a policy do not change by themselves, so that nothing is weighed otherwise."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import UTC, datetime, time, timedelta
from itertools import chain

from dispatcher.core.legality import law_window, office_of
from dispatcher.core.policy import Policy
from dispatcher.core.prices import measured_until
from dispatcher.core.rulings import standing_of
from dispatcher.core.seal import turns


def window_of(policy: Policy, now: datetime) -> Hashable:
    """Two instants of the same window give the same candidates: prices grow old with a UTC day, and the law changes by
    itself at instants that are known beforehand, as what was measured begins and ceases to count."""
    rules = standing_of(policy, now)
    passed = sum(at <= now for at in _measures(policy))
    return now.astimezone(UTC).date(), law_window(policy, now), rules.trouble if rules is not None else None, passed


def window_until(policy: Policy, now: datetime) -> datetime:
    """When the window of an instant ends at the latest: until then, and no longer, all may be as it was."""
    settings, next_day = policy.residency.settings, now.astimezone(UTC).date() + timedelta(days=1)
    if settings.must_cover_expected_runtime:
        return now
    instants = (*office_of(policy).moments, *turns(policy.seal, settings.max_age_s), *_measures(policy))
    return min((datetime.combine(next_day, time(), UTC), *(at for at in instants if at > now)))


def _measures(policy: Policy) -> tuple[datetime, ...]:
    """From when and until when each measured bandwidth counts."""
    book = policy.prices
    return tuple(chain.from_iterable((found.at, measured_until(found, book)) for found in book.measured.values()))
