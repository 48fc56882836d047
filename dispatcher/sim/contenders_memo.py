"""A candidate memo that knows, without weighing, that a request which waits would only be told to wait again.

A queue in overload holds hundreds of requests that are all a little different. Whenever anything changes on a cluster,
the daemon weighs each of them there anew, which is right (its API shows the newest candidates) and takes a fraction of
a second. A simulation cannot: it sees such a change every few simulated seconds, for months. So here a request that
waits is weighed again only where it might now be chosen: where a cheap bound (free quota, free nodes, somebody to
preempt) does not exclude it. What is decided, and what is recorded, stays the same to the byte
(tests/loops/test_sim_parity.py); only candidates that nobody looks at are older.

Valid while no queue, flavor or link changes during the run, as in every simulation.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field, replace
from datetime import datetime

from dispatcher.core.context import Setting
from dispatcher.core.decision import NO_ROOM, Candidate, Fit, Reason
from dispatcher.core.fit import fit_of
from dispatcher.core.ids import ClusterName, FlavorName, QueueName, WorkloadUid
from dispatcher.core.index import ClusterIndex, Room
from dispatcher.core.memo import Anew, CandidateMemo
from dispatcher.core.place import Place
from dispatcher.core.policy import Policy
from dispatcher.core.resources import is_gpu
from dispatcher.core.slate import Ground, Slate, Weigh
from dispatcher.core.snapshot import Hold, Link, Snapshot
from dispatcher.core.workload import PodSet, Request

_LASTING = frozenset(
    {
        Reason.NOT_LISTED,
        Reason.NOT_IN_BLUEPRINT,
        Reason.NOT_IN_ANNOTATION,
        Reason.NAMESPACE_MISSING,
        Reason.LOCAL_QUEUE_MISSING,
        Reason.QUEUE_MISSING,
        Reason.NO_SUCH_PRODUCT,
        Reason.UNKNOWN_PRODUCT,
        Reason.LABEL_MISMATCH,
        Reason.TOPOLOGY_MISMATCH,
        Reason.NEVER_FITS,
        Reason.PRICE_UNKNOWN,
        Reason.DATA_SIZE_UNKNOWN,
        Reason.EGRESS_UNKNOWN,
    }
)
"""What no change of usage lifts."""
_OF_THE_LAW = frozenset({Reason.RESIDENCY, Reason.RESIDENCY_INDETERMINATE, Reason.RULES_MISSING})
"""The same, where the cluster has one flavor only for the request: the law may differ by flavor."""

_Kind = tuple[QueueName, int, PodSet]
"""What the bound reads of a request: its queue there, its priority, and its pods."""
_Known = tuple[tuple[Hold, ...], dict[_Kind, bool]]


@dataclass(slots=True)
class PatientMemo(CandidateMemo):
    """`CandidateMemo`, whose `unchanged` is also true of requests that would have to wait all the same."""

    _anew: int = 0
    """The count of the memo when policy or time last changed what everything is weighed by."""
    _told_at: dict[WorkloadUid, int] = field(default_factory=dict)
    _rooms: dict[ClusterName, tuple[Ground, _Known]] = field(default_factory=dict)
    _places_of: dict[WorkloadUid, dict[int, tuple[int, Candidate | None]]] = field(default_factory=dict)
    """By cluster, as of a count of the memo: how a request that fitted would lie there."""
    _outs: dict[WorkloadUid, dict[int, tuple[int, bool]]] = field(default_factory=dict)
    """By cluster, as of a count of the memo: whether a request is still out there."""
    _flavors: dict[tuple[ClusterName, QueueName, PodSet], tuple[FlavorName, ...]] = field(default_factory=dict)

    def look(self, snapshot: Snapshot, policy: Policy, now: datetime) -> None:
        """As CandidateMemo."""
        ruled, window = self._policy, self._window
        CandidateMemo.look(self, snapshot, policy, now)
        if ruled is not self._policy or window != self._window:
            self._anew = self._count

    def slate(self, setting: Setting, snapshot: Snapshot, weigh: Weigh) -> Slate:
        """As CandidateMemo."""
        found = CandidateMemo.slate(self, setting, snapshot, weigh)
        self._note(setting.request.uid)
        return found

    def told(self, request: Request) -> None:
        """As CandidateMemo."""
        CandidateMemo.told(self, request)
        self._note(request.uid)

    def _note(self, uid: WorkloadUid) -> None:
        """What is known of its candidates is as of now."""
        self._places_of.pop(uid, None)
        self._outs.pop(uid, None)
        self._told_at[uid] = self._count

    def weighed_anew(self, request: Request) -> Anew | None:
        """As CandidateMemo: nobody asks `why` in a simulation. None where the request is somebody in particular, or
        would stop others, which costs more with time."""
        asked = self._asked.get(request.uid)
        if asked is None or asked.request is not request or asked.told is None or asked.field.at != self._count:
            return None
        found = Anew(tuple([each.body for each in asked.told]), asked.field.candidates)
        return None if self._personal(request) or any(c.preempts for c in found.after) else found

    def keep(self, alive: Container[WorkloadUid]) -> None:
        """As CandidateMemo."""
        CandidateMemo.keep(self, alive)
        for remembered in (self._told_at, self._places_of, self._outs):
            for uid in [uid for uid in remembered if uid not in alive]:
                del remembered[uid]

    def unchanged(self, request: Request) -> bool:
        """Whether the newest slate of this request, which was told to wait, would be the same for all that is recorded
        of it."""
        if CandidateMemo.unchanged(self, request):
            return True
        asked = self._asked.get(request.uid)
        if asked is None or asked.request is not request or asked.told is None or self._book.has(request.uid):
            return False
        known, told_at = asked.field, self._told_at.get(request.uid, -1)
        if told_at < self._anew or known.at < 0:
            return False
        for at, candidate in enumerate(known.candidates):
            lane = self._lanes[at]
            if lane.changed > known.at:
                if not self._is_out(at, candidate, request):
                    return False
            elif candidate.eligible:
                return False
        return True

    def _is_out(self, at: int, candidate: Candidate, request: Request) -> bool:
        """`_still_out`, asked once for each change of a cluster."""
        outs, lane = self._outs.setdefault(request.uid, {}), self._lanes[at]
        known = outs.get(at)
        if known is None or known[0] != lane.changed:
            known = outs[at] = (lane.changed, self._still_out(lane.ground, candidate, request))
        return known[1]

    def places(self, request: Request) -> tuple[Candidate, ...] | None:
        """As CandidateMemo. Where it fitted, whether it fits still is asked of quota and nodes alone: no price and no
        other reason changes with them."""
        asked = self._asked.get(request.uid)
        if asked is None or asked.request is not request or asked.told is None or self._book.has(request.uid):
            return None
        known, told_at = asked.field, self._told_at.get(request.uid, -1)
        if told_at < self._anew or known.at < 0:
            return None
        found = []
        for at, (lane, candidate) in enumerate(zip(self._lanes, known.candidates, strict=True)):
            if candidate.eligible:
                place = candidate if lane.changed <= known.at else self._place(at, lane.changed, candidate, request)
                if place is None:
                    return None
                found.append(place)
            elif lane.changed > known.at and not self._is_out(at, candidate, request):
                return None
        return tuple(found)

    def _place(self, at: int, changed: int, candidate: Candidate, request: Request) -> Candidate | None:
        """The candidate as it would lie there now; None where that is no plain fit."""
        places = self._places_of.setdefault(request.uid, {})
        known = places.get(at)
        if known is None or known[0] != changed:
            known = places[at] = (changed, self._placed(self._lanes[at].ground, candidate, request))
        return known[1]

    def _placed(self, ground: Ground, candidate: Candidate, request: Request) -> Candidate | None:
        index, policy = ground.index, self._policy
        queue = index.view.queues.get(candidate.queue) if index is not None and candidate.queue is not None else None
        if index is None or queue is None or policy is None or ground.cluster.link is not Link.CONNECTED:
            return None
        if candidate.held_s and candidate.incoming:  # what comes through a cache may be there sooner now
            return None
        holds = tuple(hold for hold in ground.holds if hold.stands_before(request.uid, request.priority))
        site = policy.clusters.get(candidate.cluster)
        fit = fit_of(Place(request, index, holds, index.room(holds), queue, policy, site))
        same = [p.flavor for p in fit.placements] == [p.flavor for p in candidate.placements]
        plain = fit.fit is Fit.NOW and candidate.fit is Fit.NOW
        return replace(candidate, placements=fit.placements) if plain and same else None

    def _still_out(self, ground: Ground, candidate: Candidate, request: Request) -> bool:
        """Whether the cluster, as it is now, cannot be chosen, for reasons that are told in the same words."""
        reasons = {rejection.reason for rejection in candidate.rejections}
        if ground.cluster.link is not Link.CONNECTED or len(request.pod_sets) != 1 or ground.index is None:
            return False
        if not reasons or not reasons <= NO_ROOM | _LASTING | _OF_THE_LAW:
            return False
        if reasons & _LASTING:
            return True
        queue = candidate.queue
        if queue is None:
            return False
        flavors = self._options(ground.index, candidate.cluster, queue, request.pod_sets[0])
        if reasons & _OF_THE_LAW:
            return len(flavors) == 1
        return self._full(ground, ground.index, (queue, request.priority, request.pod_sets[0]), request)

    def _options(
        self, index: ClusterIndex, cluster: ClusterName, queue: QueueName, pod_set: PodSet
    ) -> tuple[FlavorName, ...]:
        """The flavors of a queue that have accelerators of the kind that the pods ask for."""
        key = (cluster, queue, pod_set)
        found = self._flavors.get(key)
        if found is None:
            resource = pod_set.per_pod.gpu_resource()
            quotas = index.view.queues[queue].quotas
            quota = index.base.quota
            found = self._flavors[key] = tuple(
                q.flavor
                for q in quotas
                if q.resource == resource and quota.potential(queue, (q.flavor, q.resource)) > 0
            )
        return found

    def _full(self, ground: Ground, index: ClusterIndex, kind: _Kind, request: Request) -> bool:
        """Whether there is certainly no room for such pods now, and nobody whom they could preempt."""
        holds = ground.holds
        if any(hold.yields_above is not None for hold in holds):
            holds = tuple(hold for hold in holds if hold.stands_before(request.uid, request.priority))
        known = self._rooms.get(ground.cluster.name)
        if known is None or known[0] is not ground or known[1][0] != holds:
            known = self._rooms[ground.cluster.name] = (ground, (holds, {}))
        verdicts = known[1][1]
        if kind not in verdicts:
            room = index.room(holds)
            flavors = self._options(index, ground.cluster.name, kind[0], kind[2])
            verdicts[kind] = not any(_may_fit(index, room, kind, flavor) for flavor in flavors)
        return verdicts[kind]


def _may_fit(index: ClusterIndex, room: Room, kind: _Kind, flavor: FlavorName) -> bool:
    """A bound from above, by accelerators alone: quota that is free, nodes with that many free (in whatever domain of a
    topology), somebody to preempt."""
    queue, priority, pods = kind
    resource = pods.per_pod.gpu_resource()
    if resource is None or not is_gpu(resource):
        return True
    each = pods.per_pod.get(resource)
    any_priority = index.view.queues[queue].reclaims_any
    if any(
        entries and (any_priority or entries[0][0] < priority)
        for (_, held, of), entries in index.reservations().items()
        if held == flavor and of == resource
    ):
        return True
    if room.quota.available(queue, (flavor, resource)) < each * pods.count:
        return False
    labels = index.view.flavors[flavor].labels if flavor in index.view.flavors else ()
    amounts = room.nodes.amounts(room.nodes.flavored(labels), resource)
    return sum(count * (free // each) for free, count in amounts if free > 0) >= pods.count
