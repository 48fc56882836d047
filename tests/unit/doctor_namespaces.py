"""Broken fleets whose queues take no work of a namespace; a part of the table in test_doctor.py."""

from __future__ import annotations

from dispatcher.core.doctor import Code
from dispatcher.core.doctor.facts import QueueChecks
from dispatcher.core.workload import Requirement
from tests.unit.doctor_facts import NAME, YES, Row, hub_cluster, worker

NAMESPACE_ROWS = (
    Row(
        Code.NAMESPACE_NOT_SELECTED,
        "a worker's queue without a selector takes work of no namespace",
        worker(queue_checks={"training": QueueChecks(YES, selector=None)}),
        worker(queue_checks={"training": QueueChecks(YES, selector=())}),
    ),
    Row(
        Code.NAMESPACE_NOT_SELECTED,
        "a worker's queue that selects by a label needs it on the namespace",
        worker(queue_checks={"training": QueueChecks(YES, selector=(Requirement("team", "In", ("a",)),))}),
        worker(
            queue_checks={"training": QueueChecks(YES, selector=(Requirement("team", "In", ("a",)),))},
            namespaces={"team-a": {NAME: "team-a", "team": "a"}},
        ),
    ),
    Row(
        Code.NAMESPACE_NOT_SELECTED,
        "the hub's queue as well; there the namespace's name is known without reading it, and nothing else",
        hub_cluster(
            namespaces=None,
            queue_checks={"training": QueueChecks(YES, (("fleet", ()),), (Requirement(NAME, "In", ("team-b",)),))},
        ),
        hub_cluster(
            namespaces=None,
            queue_checks={
                "training": QueueChecks(
                    YES, (("fleet", ()),), (Requirement(NAME, "In", ("team-a",)), Requirement("team", "Exists"))
                )
            },
        ),
    ),
)
