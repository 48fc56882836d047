"""What an onlooker of the whole world is told, and how long its jobs run: the two things a simulator asks of a world.

A dispatcher sees the world through its ports alone, late and in views. Whoever measures dispatchers must see what
really happened, when it happened, and have no part in it: that is a witness. And while the embedded world lets a pod
run for the time that its manifest says, a simulated job runs as fast as the flavor under it, is stopped, and goes on
elsewhere from its checkpoint: that is its pace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from dispatcher.core.ids import ClusterName, FlavorName

if TYPE_CHECKING:
    from connectors.embedded.objects import Workload


class Happening(StrEnum):
    """One thing that happened to one Workload, on the hub or on a worker.

    Of its pods there: STARTED, all are on nodes; ENDED, they have run their time; STOPPED, they are told to go; GONE,
    those that were told have left their nodes.
    """

    CREATED = "created"
    RESERVED = "reserved"
    NOMINATED = "nominated"
    ADMITTED = "admitted"
    PREEMPTS = "preempts"
    EVICTED = "evicted"
    RELEASED = "released"
    STARTED = "started"
    STOPPED = "stopped"
    ENDED = "ended"
    GONE = "gone"
    FINISHED = "finished"
    DELETED = "deleted"


Witness = Callable[[Happening, ClusterName | None, "Workload"], None]
"""Told what happened, where (None = on the hub), and to which Workload: there, the worker's own, a copy of the hub's.

PREEMPTS is told of whoever makes others leave, before the EVICTED of each of them.
"""


def nobody(what: Happening, where: ClusterName | None, workload: Workload) -> None:
    """The witness of a world that nobody measures."""


class Pace(Protocol):
    """How long jobs run, where it is more than their manifest says. A job's pods then begin and end together."""

    def begins(self, cluster: ClusterName, job: str, flavors: Mapping[str, FlavorName]) -> float:
        """All pods of the job (namespace/name) are on nodes; `flavors` has the flavor of each resource. Returns for how
        many seconds they will run, unless they are stopped."""

    def ends(self, cluster: ClusterName, job: str) -> None:
        """They have run their time."""

    def stops(self, cluster: ClusterName, job: str, ran_s: float) -> None:
        """They were stopped after that many seconds."""
