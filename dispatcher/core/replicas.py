"""Whether a declared replica is where it is said to be: what a look at its store found, and what follows from it.

Only one thing follows in decisions: a replica that is certainly not there is no source. What is not known stays as it
was declared, and is shown as unknown with its age (design section 5: unknown is a value, and no guess).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from dispatcher.core.ids import DataSetName, StoreName
from dispatcher.core.policy import Policy

Replica = tuple[DataSetName, StoreName]
KEEPS = 3
"""What was seen counts for so many times `every`: after that nobody knows it any more."""


class Presence(StrEnum):
    """What is known of a replica in a store. Stable codes: they are in the API and in metrics."""

    CONFIRMED = "confirmed"
    MISSING = "missing"
    """The store answered, and what a replica must have there is not there."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at a replica. `objects` and `size_bytes` are at least so many where there is `more`; None where nothing
    was counted. `why` says what kept us from knowing, or what is missing."""

    presence: Presence
    at: datetime
    objects: int | None = None
    size_bytes: int | None = None
    more: bool = False
    why: str = ""


def declared(policy: Policy) -> tuple[Replica, ...]:
    """The replicas that can be looked for, in order: those in stores whose objects' place is declared."""
    return tuple(
        (name, store)
        for name, data_set in sorted(policy.data_sets.items())
        for store in sorted({*data_set.replica_stores, *data_set.missing_stores})
        if store in policy.stores and policy.stores[store].objects is not None
    )


def without(policy: Policy, missing: Iterable[Replica]) -> Policy:
    """The policy in which these replicas are no sources. Another policy, with another digest: what was missing is part
    of every decision that it changed, and replays."""
    gone = sorted({(name, store) for name, store in missing if _is_declared(policy, name, store)})
    if not gone:
        return policy
    sets = dict(policy.data_sets)
    for name, store in gone:
        known = sets[name]
        stores = tuple(each for each in known.replica_stores if each != store)
        sets[name] = replace(known, replica_stores=stores, missing_stores=(*known.missing_stores, store))
    digest = hashlib.sha256(f"{policy.digest}/{gone}".encode()).hexdigest()[: len(policy.digest)]
    return replace(policy, digest=digest, data_sets=MappingProxyType(sets))


def _is_declared(policy: Policy, name: DataSetName, store: StoreName) -> bool:
    known = policy.data_sets.get(name)
    return known is not None and store in known.replica_stores
