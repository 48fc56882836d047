"""From a user's manifest to the request that the daemon would decide on, without a cluster.

The manifest goes through the embedded hub, set up with what the blueprint renders: the same decoders and the same
`build_request` as in the daemon read it, so an offline answer cannot differ in how a pod template is understood.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from connectors.embedded import EmbeddedFleet, ManualClock
from dispatcher.config.blueprint import Blueprint
from dispatcher.config.render import render
from dispatcher.core.declaration import InputProblem
from dispatcher.core.errors import Refused
from dispatcher.core.ids import WorkloadUid
from dispatcher.core.policy import Policy
from dispatcher.core.request import build_request
from dispatcher.core.workload import Request

_KUEUE_TAKES_S = 5.0
"""How long before `now` the job is taken to have been created: long enough for Kueue to make its Workload."""


def request_of_manifest(
    manifest: Mapping[str, Any], blueprint: Blueprint, policy: Policy, now: datetime
) -> Request | tuple[InputProblem, ...]:
    """The request of a Job or JobSet that would have been created a moment before `now`, or what is wrong with it.

    Its uid is made from its names, so that ties come out the same each time.

    Raises:
        Refused: the hub would not take it (unknown kind, missing field, no such namespace), or Kueue would not see it.
    """
    clock = ManualClock(now - timedelta(seconds=_KUEUE_TAKES_S))
    fleet = EmbeddedFleet(render(blueprint).hub, {}, clock)
    fleet.connect()
    fleet.submit(manifest)
    clock.advance(_KUEUE_TAKES_S)
    fleet.advance()
    hub = fleet.hub_view()
    workload = next(iter(hub.workloads.values()), None)
    if workload is None:
        raise Refused("Kueue makes no Workload of a job without the label kueue.x-k8s.io/queue-name")
    owner = hub.owners.get(workload.owner.uid) if workload.owner is not None else None
    built = build_request(workload, owner, hub, policy)
    if not isinstance(built, Request):
        return built
    return replace(built, uid=WorkloadUid(f"offline/{built.namespace}/{built.job_kind}/{built.job_name}"))
