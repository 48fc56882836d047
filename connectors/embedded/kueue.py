"""Kueue of one cluster: queues, quota reservation, admission, eviction. The hub and every worker run the same code.

What it does with a Workload's fate (starting or stopping a job, telling MultiKueue) is the cluster's business, told
through `Listener`. Sources: kueue-contract sections 4, 6, 10 and 12.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Protocol

from connectors.embedded.flavors import Mode, Verdict, assign
from connectors.embedded.manifests import Inventory, QueueSpec, selects
from connectors.embedded.objects import PENDING, READY, REJECTED, RETRY, Assignment, Shape, Workload
from connectors.embedded.pending import PendingQueue, shape_of
from connectors.embedded.preemption import victims_for
from connectors.embedded.quota import QuotaNode, QuotaTree
from connectors.embedded.topology import holds_together
from connectors.embedded.witness import Happening
from connectors.embedded.world import Pulse, World
from dispatcher.core.ids import QueueName, WorkloadUid
from dispatcher.core.snapshot import StopPolicy
from dispatcher.core.workload import CheckState

SCHEDULING_S = 0.05
"""From an event to the scheduling cycle that answers it."""
RECONCILE_S = 0.02
"""From a status write to the controller that acts on it."""


class Listener(Protocol):
    """What the cluster around Kueue is told."""

    def changed(self, workload: Workload) -> None:
        """Its status was written."""

    def admitted(self, workload: Workload) -> None:
        """It may run now."""

    def evicted(self, workload: Workload) -> None:
        """Its job must stop; the cluster calls `release` when it has."""

    def check_active(self, name: str) -> bool:
        """Whether an AdmissionCheck has a controller that serves it."""

    def laid_out(self, workload: Workload, wanted: Assignment) -> str:
        """Give pod sets that must lie together their domains; what stands in the way, in words, or nothing."""

    def witnessed(self, what: Happening, workload: Workload) -> None:
        """Something that an onlooker may wish to know."""


class ActiveQueue:
    """A ClusterQueue as Kueue's cache holds it."""

    def __init__(self, spec: QueueSpec, node: QuotaNode) -> None:
        self.spec = spec
        self.node = node
        self.pending = PendingQueue()
        self.reserved: dict[WorkloadUid, Workload] = {}

    @property
    def root(self) -> str:
        root = self.node.root()
        return f"{'queue' if root is self.node else 'cohort'}:{root.name}"


class Kueue:
    """The queues of one cluster and the Workloads in them.

    `clears_nominations` says whether the hub's clearing policy is installed: without it an eviction leaves a foreign
    manager's nomination behind (kueue-contract section 3.2).
    """

    def __init__(self, world: World, inventory: Inventory, listener: Listener) -> None:
        self.workloads: dict[WorkloadUid, Workload] = {}
        self.queues: dict[QueueName, ActiveQueue] = {}
        self.tree = QuotaTree((), ())
        self.revision = 0
        self.settings = 0
        """Grows with every change of what is configured: queues, flavors, checks, and which of them are active."""
        self.clears_nominations = True
        self._active: dict[QueueName, bool] = {}
        self._world = world
        self.inventory = inventory
        self._listener = listener
        self._homeless: dict[WorkloadUid, Workload] = {}
        self._dirty: set[str] = set()
        self._cycle = Pulse(world, self._run_cycle)
        self.inventory_changed()

    # --- what exists ---------------------------------------------------------------------------------------------

    def inventory_changed(self) -> None:
        """Queues, cohorts, flavors, checks or namespaces were edited: build the tree anew and look at everybody."""
        inventory = self.inventory
        self._settings_changed()
        self.tree = QuotaTree(inventory.queues.values(), inventory.cohorts.values())
        self.queues = {
            name: ActiveQueue(spec, self.tree.queues[name]) for name, spec in sorted(inventory.queues.items())
        }
        self._homeless.clear()
        self.revision += 1
        for workload in list(self.workloads.values()):
            workload.queued = False
            self._place(workload)
        for queue in self.queues.values():
            self._dirty.add(queue.root)
            if queue.spec.view.stop_policy is StopPolicy.HOLD_AND_DRAIN:
                for workload in list(queue.reserved.values()):
                    self.evict(workload, "ClusterQueueStopped")
        for workload in list(self.workloads.values()):
            local = inventory.local_queues.get((workload.namespace, workload.local_queue))
            if local is not None and local.stop_policy is StopPolicy.HOLD_AND_DRAIN and workload.assignment is not None:
                self.evict(workload, "LocalQueueStopped")
        self._cycle.within(SCHEDULING_S)

    def queue_active(self, name: QueueName) -> bool:
        """The ClusterQueue's Active condition: it exists, is not stopped, its flavors and checks are there."""
        known = self._active.get(name)
        if known is None:
            known = self._active[name] = self._is_active(name)
        return known

    def _settings_changed(self) -> None:
        self.settings += 1
        self._active.clear()

    def _is_active(self, name: QueueName) -> bool:
        queue = self.queues.get(name)
        if queue is None or queue.spec.view.stop_policy is not StopPolicy.NONE:
            return False
        flavors = {flavor for group in queue.spec.view.groups for flavor in group.flavors}
        there = [self.inventory.flavors[flavor] for flavor in flavors if flavor in self.inventory.flavors]
        return (
            len(there) == len(flavors)
            and all(flavor.topology is None or flavor.topology.levels for flavor in there)
            and all(self._listener.check_active(check) for check in queue.spec.checks)
        )

    def local_queue_active(self, namespace: str, name: str) -> bool:
        """The LocalQueue's Active condition."""
        local = self.inventory.local_queues.get((namespace, name))
        return local is not None and local.stop_policy is StopPolicy.NONE and self.queue_active(local.cluster_queue)

    # --- life of a Workload --------------------------------------------------------------------------------------

    def add(self, workload: Workload) -> None:
        """A Workload object was created."""
        self.workloads[workload.uid] = workload
        self._listener.witnessed(Happening.CREATED, workload)
        self._place(workload)
        self._listener.changed(workload)

    def remove(self, workload: Workload) -> None:
        """A Workload object is gone: whatever it held is free."""
        workload.deleted = True
        self._listener.witnessed(Happening.DELETED, workload)
        self.workloads.pop(workload.uid, None)
        self._unqueue(workload)
        self._free(workload)

    def finish(self, workload: Workload, reason: str) -> None:
        """Its job has ended: Finished is for ever, and its quota is free."""
        if workload.finished:
            return
        workload.finished_at, workload.finished_reason = self._world.stamp(), reason
        self._listener.witnessed(Happening.FINISHED, workload)
        self._unqueue(workload)
        self._free(workload)
        self._listener.changed(workload)

    def evict(self, workload: Workload, reason: str, preempted_by: str = "") -> None:
        """Begin an eviction (kueue-contract section 6). Quota, if it has any, stays reserved until `release`."""
        if workload.finished or workload.evicted_at is not None:
            return
        if workload.assignment is None and reason != "AdmissionCheck":
            return
        workload.evicted_at, workload.evicted_reason = self._world.stamp(), reason
        workload.preempted_by = preempted_by
        self._listener.witnessed(Happening.EVICTED, workload)
        workload.cluster_name = None
        if self.clears_nominations:
            workload.nominated = ()
        if reason == "AdmissionCheck":
            workload.queue_order_at = workload.evicted_at
        for name, check in workload.checks.items():
            if check.state != PENDING:
                text = f"Reset to Pending after eviction. Previously: {check.state}"
                workload.checks[name] = CheckState(name, PENDING, text, self._world.stamp())
        self._listener.changed(workload)
        if workload.assignment is not None:
            self._listener.evicted(workload)

    def release(self, workload: Workload) -> None:
        """The job of an evicted Workload has stopped: give its quota back and put it in the queue again."""
        if workload.evicted_at is None or workload.assignment is None or workload.finished:
            return
        self._free(workload)
        workload.assignment = None
        workload.cluster_queue = None
        if workload.admitted_at is not None:
            workload.left_at = self._world.stamp()
        workload.quota_reserved_at = workload.admitted_at = None
        workload.quota_message = f"Evicted: {workload.evicted_reason}"
        self._listener.witnessed(Happening.RELEASED, workload)
        self._listener.changed(workload)
        self._place(workload)

    def deactivate(self, workload: Workload, reason: str = "Deactivated") -> None:
        """spec.active becomes false: it leaves the queue, or is evicted, and does not come back by itself."""
        workload.active = False
        self._unqueue(workload)
        if workload.assignment is not None:
            self.evict(workload, reason)
        self._listener.changed(workload)

    def activate(self, workload: Workload) -> None:
        """spec.active becomes true again."""
        workload.active = True
        self._place(workload)
        self._listener.changed(workload)

    def set_check(self, workload: Workload, check: CheckState, requeue_after_s: float | None = None) -> None:
        """Somebody wrote one entry of status.admissionChecks; Kueue acts on it a moment later."""
        workload.checks[check.name] = replace(check, changed_at=self._world.stamp())
        if requeue_after_s is not None:
            workload.requeue_at = self._world.now + timedelta(seconds=requeue_after_s)
        self._listener.changed(workload)
        self._world.after(RECONCILE_S, lambda: self._follow_checks(workload))

    def _follow_checks(self, workload: Workload) -> None:
        if workload.deleted or workload.finished:
            return
        states = {check.state for check in workload.checks.values()}
        if REJECTED in states:
            if workload.active:
                self.deactivate(workload, "DeactivatedDueToAdmissionCheck")
        elif RETRY in states:
            self.evict(workload, "AdmissionCheck")
        else:
            self._admit_if_ready(workload)

    def _admit_if_ready(self, workload: Workload) -> None:
        if workload.assignment is None or workload.evicted_at is not None or workload.admitted_at is not None:
            return
        if all(check.state == READY for check in workload.checks.values()):
            workload.admitted_at, workload.left_at = self._world.stamp(), None
            self._listener.witnessed(Happening.ADMITTED, workload)
            self._listener.changed(workload)
            self._listener.admitted(workload)

    # --- queues --------------------------------------------------------------------------------------------------

    def _place(self, workload: Workload) -> None:
        """Find the queue of a Workload; account for what it holds, or let it wait there."""
        self._homeless.pop(workload.uid, None)
        if workload.finished or workload.deleted:
            return
        if workload.assignment is not None:
            queue = self.queues.get(workload.cluster_queue) if workload.cluster_queue else None
            if queue is not None and workload.uid not in queue.reserved:
                self._take(queue, workload)
            return
        problem = self._resolve(workload)
        if problem is not None:
            self._homeless[workload.uid] = workload
            self._say(workload, problem)
            return
        if not workload.active:
            return
        if workload.requeue_at is not None and workload.requeue_at > self._world.now:
            wait_s = (workload.requeue_at - self._world.now).total_seconds()
            self._world.after(wait_s, lambda: self._place(workload))
            return
        self._enqueue(workload)

    def _resolve(self, workload: Workload) -> str | None:
        """Set the Workload's ClusterQueue and its checks; the problem in words where there is none."""
        local = self.inventory.local_queues.get((workload.namespace, workload.local_queue))
        workload.queue = None
        if local is None:
            return f"LocalQueue {workload.local_queue} doesn't exist"
        queue = self.queues.get(local.cluster_queue)
        if queue is None:
            return f"ClusterQueue {local.cluster_queue} doesn't exist"
        workload.queue = local.cluster_queue
        if not selects(queue.spec.namespaces, self.inventory.namespaces.get(workload.namespace, {})):
            return "Workload namespace doesn't match ClusterQueue selector"
        for name in queue.spec.checks:
            workload.checks.setdefault(name, CheckState(name, PENDING, "", self._world.stamp()))
        for name in [name for name in workload.checks if name not in queue.spec.checks]:
            del workload.checks[name]
        if local.stop_policy is not StopPolicy.NONE:
            return f"LocalQueue {workload.local_queue} is inactive"
        if not self.queue_active(local.cluster_queue):
            return f"ClusterQueue {local.cluster_queue} is inactive"
        return None

    def _enqueue(self, workload: Workload) -> None:
        assert workload.queue is not None
        queue = self.queues[workload.queue]
        queue.pending.push(workload)
        self.revision += 1
        known = queue.pending.turned_away.get(shape_of(workload))
        if known is not None:
            self._say(workload, known)
            return
        self._dirty.add(queue.root)
        self._cycle.within(SCHEDULING_S)

    def _unqueue(self, workload: Workload) -> None:
        self._homeless.pop(workload.uid, None)
        if workload.queued and workload.queue is not None:
            self.queues[workload.queue].pending.discard(workload)
            self.revision += 1

    def _take(self, queue: ActiveQueue, workload: Workload) -> None:
        assert workload.assignment is not None
        queue.reserved[workload.uid] = workload
        for key, value in workload.assignment.usage:
            queue.node.use(key, value)
        self.revision += 1

    def _free(self, workload: Workload) -> None:
        """Give quota back, once, and try those whom the lack of it turned away."""
        queue = self.queues.get(workload.cluster_queue) if workload.cluster_queue else None
        if queue is None or queue.reserved.pop(workload.uid, None) is None or workload.assignment is None:
            return
        for key, value in workload.assignment.usage:
            queue.node.give_back(key, value)
        self.revision += 1
        self._retry(queue.root)

    def _retry(self, root: str) -> None:
        for queue in self.queues.values():
            if queue.root == root:
                queue.pending.turned_away.clear()
        self._dirty.add(root)
        self._cycle.within(SCHEDULING_S)

    def nodes_changed(self) -> None:
        """Nodes came, went or changed: try those that found no domain."""
        for queue in self.queues.values():
            asked = [shape for shape in queue.pending.turned_away if _asks_for_domains(shape)]
            for shape in asked:
                del queue.pending.turned_away[shape]
            if asked:
                self._dirty.add(queue.root)
                self._cycle.within(SCHEDULING_S)

    def checks_changed(self) -> None:
        """A check became active or inactive, which may open or close queues."""
        self.revision += 1
        self._settings_changed()
        for workload in list(self.workloads.values()):
            if workload.assignment is None:
                self._unqueue(workload)
                self._place(workload)

    def _say(self, workload: Workload, message: str) -> None:
        """Write the QuotaReserved condition's message, if it is news."""
        if workload.quota_message != message:
            workload.quota_message = message
            self._listener.changed(workload)

    # --- the scheduling cycle ------------------------------------------------------------------------------------

    def _run_cycle(self) -> None:
        dirty, self._dirty = sorted(self._dirty), set()
        for root in dirty:
            queues = [queue for queue in self.queues.values() if queue.root == root]
            while self._round(queues):
                pass

    def _round(self, queues: Iterable[ActiveQueue]) -> bool:
        """One head of each queue: those within their own quota first, then by priority, then oldest."""
        heads: list[tuple[tuple[bool, int, object, int], ActiveQueue, Workload, Verdict]] = []
        for queue in queues:
            head = queue.pending.head(queue.spec.strict) if self.queue_active(queue.spec.name) else None
            if head is not None:
                verdict = self._judge(queue, head)
                borrows = verdict.assignment is not None and verdict.assignment.borrows
                rank = (borrows, -head.priority, head.queue_order_at, head.seq)
                heads.append((rank, queue, head, verdict))
        heads.sort(key=lambda entry: entry[0])
        for position, (_, queue, head, first) in enumerate(heads):
            verdict = first if position == 0 else self._judge(queue, head)
            if verdict.mode is Mode.FIT:
                self._reserve(queue, head, verdict)
            else:
                self._turn_away(queue, head, verdict)
        return bool(heads)

    def _judge(self, queue: ActiveQueue, workload: Workload) -> Verdict:
        may_preempt = queue.spec.within_queue != "Never" or queue.spec.within_cohort != "Never"
        verdict = assign(workload.pod_sets, queue.spec, queue.node, self.inventory.flavors, may_preempt)
        if verdict.mode is Mode.FIT and verdict.assignment is not None and _asks_for_domains(workload.shape):
            problem = self._listener.laid_out(workload, verdict.assignment)
            return Verdict(Mode.NO_FIT, None, problem) if problem else verdict
        return verdict

    def _reserve(self, queue: ActiveQueue, workload: Workload, verdict: Verdict) -> None:
        self._unqueue(workload)
        workload.assignment = verdict.assignment
        workload.cluster_queue = queue.spec.name
        workload.quota_reserved_at = self._world.stamp()
        workload.quota_message = f"Quota reserved in ClusterQueue {queue.spec.name}"
        workload.evicted_at, workload.evicted_reason, workload.requeue_at = None, "", None
        workload.preempted_by = ""
        self._take(queue, workload)
        self._listener.witnessed(Happening.RESERVED, workload)
        self._listener.changed(workload)
        self._world.after(RECONCILE_S, lambda: self._follow_checks(workload))

    def _turn_away(self, queue: ActiveQueue, workload: Workload, verdict: Verdict) -> None:
        message = verdict.message
        if verdict.mode is Mode.PREEMPT and verdict.assignment is not None:
            others = [other for other in self.queues.values() if other is not queue and other.root == queue.root]
            victims = victims_for(workload, verdict.assignment, queue, others)
            if victims is not None:
                message = f"{message}. Pending the preemption of {len(victims)} workload(s)"
                if victims:
                    self._listener.witnessed(Happening.PREEMPTS, workload)
                for victim, why in victims:
                    self.evict(victim, "Preempted", why)
        queue.pending.turned_away[shape_of(workload)] = message
        self._say(workload, message)


def _asks_for_domains(shape: Shape) -> bool:
    return any(pod_set.topology is not None and holds_together(pod_set.topology) for pod_set in shape.pod_sets)
