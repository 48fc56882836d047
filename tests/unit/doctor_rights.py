"""Rows of the doctor's table about permissions that a daemon can do without, each with what is then not done."""

from __future__ import annotations

from dispatcher.core.doctor import Code
from dispatcher.core.doctor.facts import READ_TOPOLOGIES, WRITE_WORKLOADS, Unread
from dispatcher.core.policy import QueuePolicy
from dispatcher.core.workload import WorkloadClass
from tests.core_builders import QUEUE, plan
from tests.unit.doctor_facts import Row, all_of, hub_cluster, no_blueprint, policy_change, worker

TRAINING = WorkloadClass.TRAINING

idle_class = policy_change(classes={TRAINING: plan(TRAINING, idle_timeout_s=3600)})
idle_queue = policy_change(queues={QUEUE: QueuePolicy(QUEUE, TRAINING, idle_timeout_s=3600)})

RIGHTS_ROWS: tuple[Row, ...] = (
    Row(
        Code.TOPOLOGIES_NOT_READ,
        "a worker with the role of an earlier release is read all the same: a warning, and no missing permission",
        worker(not_granted=READ_TOPOLOGIES),
        worker(not_granted=()),
    ),
    Row(
        Code.TOPOLOGIES_NOT_READ,
        "one verb of the two is as good as none, and a note that they could not be listed is not made beside it",
        worker(not_granted=READ_TOPOLOGIES[:1], unread=(Unread(READ_TOPOLOGIES[0].text(), "forbidden"),)),
    ),
    Row(
        Code.IDLE_NOT_ALLOWED,
        "an idle timeout of a class needs the right to write on the hub's Workloads",
        all_of(idle_class, hub_cluster(not_granted=(WRITE_WORKLOADS,))),
        hub_cluster(not_granted=(WRITE_WORKLOADS,)),
    ),
    Row(
        Code.IDLE_NOT_ALLOWED,
        "one of a queue needs it, too; where the right is there, or nobody was asked, nothing is said",
        all_of(idle_queue, hub_cluster(not_granted=(WRITE_WORKLOADS,))),
        all_of(idle_queue, hub_cluster(denied=None)),
    ),
    Row(
        Code.STOP_NOT_ALLOWED,
        "a worker that lets nobody stop a surplus copy is a note, and of no concern where there is no plan",
        worker(not_granted=(WRITE_WORKLOADS,)),
        all_of(no_blueprint, worker(not_granted=(WRITE_WORKLOADS,))),
    ),
)
