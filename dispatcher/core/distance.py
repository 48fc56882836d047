"""How far a cluster is from the people who use what runs there: the round trip between their region and its own.

Who they are and how far is too far is said by the workload, else by its class; round trips stand in fleet.yaml as
somebody measured them. One that nobody wrote down is unknown, never zero, and so is one within a region: a bound is
there because answers that come late are useless, and nobody would find out from a placement that merely might hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dispatcher.core.decision import Detail, Reason, Rejection, Resolver
from dispatcher.core.ids import RegionName
from dispatcher.core.policy import ClassPolicy, ClusterPolicy, Policy, RoundTrip
from dispatcher.core.workload import Request


@dataclass(frozen=True, slots=True)
class Reach:
    """From one region of users to a cluster. `trip` None: nobody has measured it."""

    users: RegionName
    trip: RoundTrip | None


def users_of(request: Request, plan: ClassPolicy) -> tuple[RegionName, ...]:
    """Where its users are: as it says, else as its class does; empty = it has none that anybody named."""
    said = request.declared.users
    return said if said is not None else plan.users


def bound_of(request: Request, plan: ClassPolicy) -> int | None:
    """The longest round trip to any of them, in milliseconds; None: none is too long."""
    said = request.declared.max_round_trip_ms
    return said if said is not None else plan.max_round_trip_ms


def reaches(request: Request, plan: ClassPolicy, site: ClusterPolicy, policy: Policy) -> Iterator[Reach]:
    for region in users_of(request, plan):
        yield Reach(region, policy.round_trip(region, site.region))


def unknown_trip(users: RegionName, site: ClusterPolicy) -> Rejection:
    """The reason of its own that an unmeasured round trip is, wherever one is needed."""
    return Rejection(Reason.LATENCY_UNKNOWN, Resolver.OPERATOR, Detail(users, expected=(site.region,)))


def too_far(request: Request, users: RegionName, trip: RoundTrip, bound_ms: int, site: ClusterPolicy) -> Rejection:
    """Who set the bound can lift it: the owner where the job says anything of it, else the operator of its class."""
    said = request.declared
    owner = said.users is not None or said.max_round_trip_ms is not None
    detail = Detail(users, needed=bound_ms, found=trip.ms, expected=(site.region,), holder=trip.source)
    return Rejection(Reason.TOO_FAR, Resolver.OWNER if owner else Resolver.OPERATOR, detail)
