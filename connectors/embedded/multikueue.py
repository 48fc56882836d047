"""MultiKueue of the hub: copies on nominated workers, the first admitted one wins, its fate comes back.

One `reconcile` a Workload, in the order of kueue-contract section 5. The facts are those of Kueue v0.19.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from connectors.embedded.hub import Hub
from connectors.embedded.kueue import RECONCILE_S
from connectors.embedded.objects import PENDING, READY, REJECTED, RETRY, Workload
from connectors.embedded.worker import Worker
from connectors.embedded.world import World
from dispatcher.core.errors import Conflict, Refused
from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.snapshot import MultiKueueClusterView
from dispatcher.core.workload import CheckState

BATCH_S = 1.0
"""MultiKueue handles what workers tell it in batches of one second."""
RECONNECT_S = 1.0
"""From a link that is back to a MultiKueueCluster that is Active."""
FIRST_RECONNECT_S = 5.0
RECONNECT_DOUBLINGS = 6
"""MultiKueue tries a lost worker at once, then after 5 s, 10 s ... 320 s (v0.19.2 multikueuecluster.go, retryAfter)."""
BACKOFF_BASE_S = 0.005
BACKOFF_CAP_S = 1000.0
ADAPTERS = ("Job", "JobSet")
OUT_OF_SYNC = "OutOfSync"


@dataclass(frozen=True, slots=True)
class Settings:
    """`remote_qps` None = calls to workers cost no time; stock Kueue has 5 a second (kueue-contract section 1).

    With `reconnect_backoff` a mended link is noticed only at MultiKueue's next try, as in real life; without, at once.
    """

    worker_lost_timeout_s: float = 900.0
    remote_qps: float | None = None
    remote_burst: int = 10
    reconnect_backoff: bool = False


class _Bucket:
    """client-go's token bucket: `reserve` says how long one more call must wait."""

    def __init__(self, qps: float, burst: int, now: datetime) -> None:
        self._interval = timedelta(seconds=1 / qps)
        self._slack = self._interval * burst
        self._next = now - self._slack

    def reserve_s(self, now: datetime) -> float:
        self._next = max(self._next, now - self._slack) + self._interval
        return max(0.0, (self._next - now).total_seconds())


class MultiKueue:
    """The controller. `refused_latches` counts writes of clusterName that the API refused."""

    def __init__(self, world: World, hub: Hub, workers: Mapping[ClusterName, Worker], settings: Settings) -> None:
        self.refused_latches = 0
        self._world = world
        self._hub = hub
        self._workers = workers
        self._settings = settings
        self._due: dict[WorkloadUid, datetime] = {}
        self._failures: dict[WorkloadUid, int] = {}
        self._connected: set[ClusterName] = set(workers)
        self._switched_off: dict[ClusterName, str] = {}
        self._lost_since: dict[ClusterName, datetime] = {}
        self._buckets: dict[ClusterName, _Bucket] = {}
        if settings.remote_qps is not None:
            for name in workers:
                self._buckets[name] = _Bucket(settings.remote_qps, settings.remote_burst, world.now)
        hub.told = lambda uid: self.enqueue(uid, RECONCILE_S)
        hub.cluster_active = self.cluster_active
        for worker in workers.values():
            worker.told = lambda uid, worker=worker: self._worker_told(worker, uid)  # type: ignore[misc]
        hub.kueue.checks_changed()

    # --- clusters ------------------------------------------------------------------------------------------------

    def cluster_active(self, name: ClusterName) -> bool:
        """The MultiKueueCluster's Active condition."""
        return name in self._hub.inventory.clusters and name in self._connected and name not in self._switched_off

    def cluster_view(self, view: MultiKueueClusterView) -> MultiKueueClusterView:
        """A MultiKueueCluster with the status of now."""
        if self.cluster_active(view.name):
            return replace(view, active=True, reason="Active", message="Connected")
        reason = self._switched_off.get(view.name, "ClientConnectionFailed")
        return replace(view, active=False, reason=reason, message=f"{view.name}: no client")

    def link_lost(self, name: ClusterName) -> None:
        """The hub can no longer reach a worker."""
        self._connected.discard(name)
        self._lost_since.setdefault(name, self._world.now)
        self._clusters_changed()

    def link_back(self, name: ClusterName) -> None:
        """A worker can be reached again; a moment later its client is there and everything is looked at."""
        self._world.after(RECONNECT_S + self._next_try_s(name), lambda: self._reconnect(name))

    def _next_try_s(self, name: ClusterName) -> float:
        """How long until MultiKueue tries a lost worker again."""
        lost = self._lost_since.get(name)
        if lost is None or not self._settings.reconnect_backoff:
            return 0.0
        gone_s, tried_s, step = (self._world.now - lost).total_seconds(), 0.0, 0
        while tried_s < gone_s:
            tried_s += FIRST_RECONNECT_S * 2 ** min(step, RECONNECT_DOUBLINGS)
            step += 1
        return tried_s - gone_s

    def switch_off(self, name: ClusterName, reason: str) -> None:
        """A MultiKueueCluster's configuration is broken (BadKubeConfig ...)."""
        self._switched_off[name] = reason
        self._lost_since.setdefault(name, self._world.now)
        self._clusters_changed()

    def switch_on(self, name: ClusterName) -> None:
        """Its configuration is mended."""
        self._switched_off.pop(name, None)
        self._reconnect(name)

    def _reconnect(self, name: ClusterName) -> None:
        if not self._workers[name].link_up:
            return
        self._connected.add(name)
        if name not in self._switched_off:
            self._lost_since.pop(name, None)
        self._clusters_changed()
        for uid in list(self._workers[name].copies_by_hub):
            self.enqueue(uid, RECONCILE_S)

    def _clusters_changed(self) -> None:
        self._hub.revision += 1
        self._hub.kueue.checks_changed()
        for uid in list(self._hub.workloads):
            self.enqueue(uid, RECONCILE_S)

    def _reach(self, names: tuple[ClusterName, ...]) -> list[Worker]:
        return [self._workers[name] for name in names if name in self._workers and self.cluster_active(name)]

    # --- the queue -----------------------------------------------------------------------------------------------

    def enqueue(self, uid: WorkloadUid, delay_s: float) -> None:
        """Look at a Workload no later than `delay_s` from now."""
        due = self._world.now + timedelta(seconds=delay_s)
        known = self._due.get(uid)
        if known is None or due < known:
            self._due[uid] = due
            self._world.after(delay_s, lambda: self._take(uid, due))

    def _worker_told(self, worker: Worker, uid: WorkloadUid) -> None:
        if self.cluster_active(worker.name):
            self.enqueue(uid, BATCH_S)

    def _take(self, uid: WorkloadUid, due: datetime) -> None:
        if self._due.get(uid) != due:
            return
        del self._due[uid]
        wait_s = self._call_all(uid)
        if wait_s > 0:
            self._world.after(wait_s, lambda: self._reconcile(uid))
        else:
            self._reconcile(uid)

    def _call_all(self, uid: WorkloadUid) -> float:
        """One GET on every connected cluster costs its share of the client's rate, nominated or not."""
        if not self._buckets:
            return 0.0
        now = self._world.now
        return max((self._buckets[name].reserve_s(now) for name in sorted(self._connected)), default=0.0)

    def _call(self, worker: Worker) -> None:
        bucket = self._buckets.get(worker.name)
        if bucket is not None:
            bucket.reserve_s(self._world.now)

    # --- one Workload --------------------------------------------------------------------------------------------

    def _reconcile(self, uid: WorkloadUid) -> None:
        workload = self._hub.workloads.get(uid)
        if workload is None or workload.deleting:
            self._remove_copies(uid, self._reach(tuple(self._workers)))
            self._failures.pop(uid, None)
            return
        check = self._hub.multikueue_check(workload)
        if check is None or check.state == REJECTED:
            return
        if workload.job is None or workload.job.kind not in ADAPTERS:
            self._hub.reject(workload, check, "No multikueue adapter found")
            return
        listed = self._hub.listed_clusters(check.name)
        reach = self._reach(listed)
        if workload.finished or workload.assignment is None:
            self._remove_copies(uid, reach)
            return
        copies = {worker.name: worker.copies_by_hub[uid] for worker in reach if uid in worker.copies_by_hub}
        if self._follow_end(workload, check, copies):
            return
        copies = self._drop_drifted(copies)
        if self._follow_winner(workload, check, copies):
            return
        self._synchronize(workload, check, listed, reach)

    def _follow_end(self, workload: Workload, check: CheckState, copies: Mapping[ClusterName, Workload]) -> bool:
        """Steps 3 and 4: a copy that has finished, an eviction on the worker, an eviction on the hub."""
        ended = {name: copy.finished_at for name, copy in copies.items() if copy.finished_at is not None}
        if ended:
            first = min(ended, key=lambda name: (ended[name], name))
            reason = copies[first].finished_reason
            if reason != OUT_OF_SYNC or workload.evicted_at is None:
                self._follow_finish(workload, check, reason)
                return True
        if workload.evicted_at is not None:
            self._stop_remotes(workload, copies)
            return True
        lost = next((n for n in sorted(copies) if copies[n].evicted_at is not None), None)
        if lost is not None and check.state == READY:
            text = f"Workload evicted on worker cluster: {copies[lost].evicted_reason}"
            self._hub.kueue.set_check(workload, replace(check, state=RETRY, message=text))
            return True
        return False

    def _follow_finish(self, workload: Workload, check: CheckState, reason: str) -> None:
        """A copy out of sync with its job never ran: it is tried again, once the hub had latched it (section 5.3)."""
        if reason != OUT_OF_SYNC:
            self._hub.finish(workload, reason)
        elif check.state == READY:
            self._retry(workload, check, "Remote workload is out of sync with its user job")

    def _drop_drifted(self, copies: Mapping[ClusterName, Workload]) -> dict[ClusterName, Workload]:
        """A copy that its worker has deactivated differs from the hub's spec: it is deleted, and made anew (5.5)."""
        kept = dict(copies)
        for name in sorted(copies):
            if not copies[name].active:
                self._call(self._workers[name])
                self._workers[name].delete(kept.pop(name))
        return kept

    def _stop_remotes(self, workload: Workload, copies: Mapping[ClusterName, Workload]) -> None:
        """The hub evicts while a remote runs (section 6): the quota goes when the hub's job is no longer active.

        The job's status is only ever copied from the remote one. So while the worker cannot be reached, or when
        somebody deleted the copy there, a job that was seen active stays so, and the eviction does not end.
        """
        for name in sorted(copies):
            worker, copy = self._workers[name], copies[name]
            if copy.admitted and copy.active:
                self._call(worker)
                worker.kueue.deactivate(copy, "DeactivatedDueToEvictedOnManagerCluster")
            else:
                self._copy_status(workload, worker, copy)
        if workload.job_active == 0:
            self._hub.kueue.release(workload)

    def _copy_status(self, workload: Workload, worker: Worker, copy: Workload) -> None:
        """Copy the remote job's status, unless it runs while the hub's own job object is suspended."""
        if workload.admitted or not worker.job_runs(copy):
            workload.job_active = worker.active_pods(copy)

    def _follow_winner(self, workload: Workload, check: CheckState, copies: Mapping[ClusterName, Workload]) -> bool:
        """Step 6: the first admitted copy wins; a winner that cannot be seen any more is waited for, then given up.

        "First" is the oldest admission over all copies, nominated or not, whatever clusterName says: a worker that
        comes back with an older copy takes the work from the one that was latched since, and no latch can follow.
        """
        if check.state == RETRY:
            return True  # the eviction that Retry asks for is on its way: no latch may undo it
        admitted = {name: copy for name, copy in copies.items() if copy.admitted and copy.active}
        if admitted:
            name = min(admitted, key=lambda n: (admitted[n].admitted_at, n != workload.cluster_name, n))
            self._latch(workload, check, name, copies)
            return True
        if check.state != READY:
            return False
        winner = workload.cluster_name
        if winner is None or self.cluster_active(winner):
            self._retry(workload, check, "Reserving remote lost")
            return True
        since = self._lost_since.get(winner, self._world.now)
        left_s = self._settings.worker_lost_timeout_s - (self._world.now - since).total_seconds()
        if left_s <= 0:
            self._retry(workload, check, f"Worker cluster {winner} lost")
        else:
            self.enqueue(workload.uid, left_s)
        return True

    def _latch(
        self, workload: Workload, check: CheckState, winner: ClusterName, copies: Mapping[ClusterName, Workload]
    ) -> None:
        """Losers' copies go first, then the job is created on the winner, only then the hub is written."""
        for name in sorted(copies):
            if name != winner:
                self._call(self._workers[name])
                self._workers[name].delete(copies[name])
        worker = self._workers[winner]
        if not worker.has_job(copies[winner]):
            self._call(worker)
            worker.create_job(copies[winner])
        self._copy_status(workload, worker, copies[winner])
        if workload.cluster_name == winner and check.state == READY:
            return
        ready = replace(check, state=READY, message=f'The workload was admitted on "{winner}"')
        try:
            self._hub.latch(workload, winner, ready)
            self._failures.pop(workload.uid, None)
        except Conflict:
            self.refused_latches += 1
            self._back_off(workload.uid)

    def _retry(self, workload: Workload, check: CheckState, message: str) -> None:
        self._hub.kueue.set_check(workload, replace(check, state=RETRY, message=message))

    def _synchronize(
        self, workload: Workload, check: CheckState, listed: tuple[ClusterName, ...], reach: list[Worker]
    ) -> None:
        """Step 8: a copy on each nominated cluster and nowhere else, once all other checks are Ready."""
        if check.state != PENDING or workload.cluster_name is not None:
            return
        others = [other for other in workload.checks.values() if other.name != check.name]
        if any(other.state != READY for other in others):
            return
        failed = any(name not in {worker.name for worker in reach} for name in workload.nominated)
        for worker in reach:
            copy = worker.copies_by_hub.get(workload.uid)
            if copy is not None and worker.name not in workload.nominated:
                self._call(worker)
                worker.delete(copy)
            elif copy is None and worker.name in workload.nominated:
                self._call(worker)
                try:
                    worker.create_copy(workload)
                except Refused:
                    failed = True
        if failed:
            self._back_off(workload.uid)
        else:
            self._failures.pop(workload.uid, None)

    def _back_off(self, uid: WorkloadUid) -> None:
        failures = self._failures[uid] = self._failures.get(uid, 0) + 1
        self.enqueue(uid, min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2 ** min(failures, 30)))

    def _remove_copies(self, uid: WorkloadUid, workers: list[Worker]) -> None:
        for worker in workers:
            copy = worker.copies_by_hub.get(uid)
            if copy is not None:
                self._call(worker)
                worker.delete(copy)
