"""A Job or JobSet object on a worker and the pods it makes: what the Job and JobSet controllers do there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Protocol

from connectors.embedded.jobspec import JobSpec, PodGroup
from connectors.embedded.nodes import Needs, NodePool, Pod
from connectors.embedded.world import World

SUCCEEDED, FAILED = "Succeeded", "Failed"
RETRY_BASE_S = 10.0
"""The Job controller's first delay before it replaces a failed pod; it doubles each time."""


class Watcher(Protocol):
    """Who hears of a job's life."""

    def pods_bound(self, run: JobRun) -> None:
        """A pod is on a node: the job's status does not say so, the pods do."""

    def job_changed(self, run: JobRun) -> None:
        """The job's status changed: pods ended."""

    def job_finished(self, run: JobRun, reason: str) -> None:
        """All is done, or failed for good."""


class Gang:
    """The common life of a job's pods: from when all of them are on nodes until they have run their time.

    `begins` says for how many seconds they run; `ends` is told when they have, `stops` after how many seconds they were
    stopped instead.
    """

    __slots__ = ("_began_at", "_begins", "_ends", "_stops", "_world")

    def __init__(
        self,
        world: World,
        begins: Callable[[], float],
        ends: Callable[[], None],
        stops: Callable[[float], None],
    ) -> None:
        self._world = world
        self._begins = begins
        self._ends = ends
        self._stops = stops
        self._began_at: datetime | None = None

    def begin(self, run_out: Callable[[], None]) -> None:
        """All pods are on nodes."""
        if self._began_at is None:
            began_at = self._began_at = self._world.now
            self._world.after(self._begins(), lambda: self._run_out(began_at, run_out))

    def _run_out(self, began_at: datetime, run_out: Callable[[], None]) -> None:
        if self._began_at is began_at:
            self._began_at = None
            self._ends()
            run_out()

    def end(self) -> None:
        """The pods are told to go; nothing where they have ended by themselves."""
        if self._began_at is not None:
            ran_s, self._began_at = (self._world.now - self._began_at).total_seconds(), None
            self._stops(ran_s)


class _Child:
    """One batch Job: the job itself, or one of a JobSet's. It owns its pods."""

    __slots__ = ("active", "failures", "group", "needs", "run", "succeeded")

    def __init__(self, run: JobRun, group: PodGroup) -> None:
        self.run = run
        self.group = group
        self.needs: Needs | None = None
        self.active: dict[int, Pod] = {}
        self.succeeded = 0
        self.failures = 0

    @property
    def complete(self) -> bool:
        return self.succeeded >= self.group.completions

    def pod_bound(self, pod: Pod) -> None:
        self.run.pod_bound()

    def pod_ended(self, pod: Pod, ran: bool) -> None:
        if self.active.pop(pod.seq, None) is not None:
            self.run.active_pods -= 1
            self.run.bound_pods -= pod.placed
        if ran and self.group.fails:
            self.failures += 1
        elif ran:
            self.succeeded += 1
        self.run.pod_ended(self, failed=ran and self.group.fails)


class JobRun:
    """The job object: suspended until `start`. `hub_uid` names the hub Workload it was made for; None = local work."""

    def __init__(self, world: World, pool: NodePool, spec: JobSpec, watcher: Watcher) -> None:
        self.spec = spec
        self.uid = ""
        self.hub_uid: str | None = None
        self.running = False
        self.finished: str | None = None
        self.deleted = False
        self.active_pods = 0
        """Pods that have not gone."""
        self.bound_pods = 0
        """Those of them that are on nodes."""
        self._world = world
        self._pool = pool
        self._watcher = watcher
        self._children = [[_Child(self, group) for _ in range(group.jobs)] for group in spec.groups]
        self._stopped: Callable[[], None] | None = None
        self.gang: Gang | None = None

    def start(self, needs: tuple[Needs, ...]) -> None:
        """Resume: make the pods. `needs` has one entry per pod set, with what Kueue added for the flavor."""
        if self.running or self.finished is not None or self.deleted:
            return
        self.running = True
        for children, wanted in zip(self._children, needs, strict=True):
            for child in children:
                child.needs = wanted
                self._fill(child)

    def stop(self, stopped: Callable[[], None]) -> None:
        """Suspend: pods are deleted, then `stopped` is called."""
        self.running = False
        if self.gang is not None:
            self.gang.end()
        self._stopped = stopped
        pods = [pod for children in self._children for child in children for pod in child.active.values()]
        for pod in pods:
            self._pool.delete(pod)
        self._tell_if_stopped()

    def delete(self, stopped: Callable[[], None] = lambda: None) -> None:
        """The job object is deleted and its pods with it; then `stopped` is called."""
        self.deleted = True
        self.stop(stopped)

    def _fill(self, child: _Child) -> None:
        missing = min(child.group.parallelism, child.group.completions - child.succeeded) - len(child.active)
        for _ in range(missing):
            assert child.needs is not None
            pod = Pod(child.needs, child.group.runs_s if self.gang is None else None, child)
            self._pool.create(pod)
            child.active[pod.seq] = pod
            self.active_pods += 1

    def placed(self) -> Iterator[tuple[str, Pod]]:
        """The pods that are on nodes, each with the node's name."""
        for child in (child for children in self._children for child in children):
            for pod in child.active.values():
                if pod.node is not None:
                    yield pod.node.view.name, pod

    def pod_bound(self) -> None:
        """A pod of this job is on a node."""
        self.bound_pods += 1
        self._watcher.pods_bound(self)
        if self.gang is not None and self.running and self.bound_pods == self.active_pods:
            self.gang.begin(self._run_out)

    def _run_out(self) -> None:
        """The gang has run its time: all pods end together."""
        for pod in [pod for children in self._children for child in children for pod in child.active.values()]:
            self._pool.finish(pod)

    def pod_ended(self, child: _Child, failed: bool) -> None:
        """A pod of this job is over; make the next one, or end the job."""
        if self.finished is None and not self.deleted:
            self._go_on(child, failed)
        self._watcher.job_changed(self)
        self._tell_if_stopped()

    def _go_on(self, child: _Child, failed: bool) -> None:
        """A job that is being suspended makes no more pods, but it can still complete or fail."""
        if child.failures > child.group.backoff_limit:
            self._finish(FAILED)
        elif all(other.complete for children in self._children for other in children):
            self._finish(SUCCEEDED)
        elif not self.running:
            return
        elif failed:
            self._world.after(RETRY_BASE_S * 2 ** (child.failures - 1), lambda: self._refill(child))
        else:
            self._fill(child)

    def _refill(self, child: _Child) -> None:
        if self.running:
            self._fill(child)

    def _finish(self, reason: str) -> None:
        self.finished = reason
        self.stop(self._stopped or (lambda: None))
        self._watcher.job_finished(self, reason)

    def _tell_if_stopped(self) -> None:
        if self._stopped is not None and not self.running and self.active_pods == 0:
            tell, self._stopped = self._stopped, None
            tell()
