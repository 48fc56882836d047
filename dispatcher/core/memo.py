"""Candidates that were weighed before and have not changed since: the same answer without weighing again.

What a candidate of a decision depends on, and nothing else (ADR 14):

1. the request's *shape*: the request without what names it and when it came (`shape_of`);
2. the cluster as seen: its link, its MultiKueueCluster, its data cache, the content of its view, and where the link is
   not connected also the age of the view and its error, which the rejection then tells;
3. the live holds on that cluster, oldest first;
4. the policy, and the window of time in which none of its facts changes (`window_of`).

A cluster on which a request is somebody in particular (`Ground.knows`) is weighed for that request alone: it has a hold
there, work of the same name lies there, or an earlier attempt speaks against it, which fades with time. The age of the
view (`observed_at`, `view_digest`) is stamped on afterwards.

The memo is passed in, bounded and never global. `slate` with a memo equals `plain_slate` byte for byte; a law of
tests/property/test_memo_laws.py holds the two side by side over changing worlds, so that a filter or a term that starts
to read something else turns it red.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from operator import is_
from typing import NamedTuple

from dispatcher.core.appraisal import Appraisals
from dispatcher.core.context import Setting
from dispatcher.core.decision import Candidate
from dispatcher.core.holds import HoldBook
from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.index import ViewIndex
from dispatcher.core.instants import later
from dispatcher.core.legality import named_workloads
from dispatcher.core.policy import Policy
from dispatcher.core.slate import (
    Ground,
    Slate,
    Weigh,
    body_digest,
    ground_digest,
    stamped,
    view_digest,
    weigh_alone,
    with_promise,
)
from dispatcher.core.snapshot import ClusterSnapshot, Hold, Link, Snapshot, digest_of, digest_of_all
from dispatcher.core.traffic import waits_for_others
from dispatcher.core.window import window_of
from dispatcher.core.workload import Declaration, Destination, Request

_NEVER = datetime.min.replace(tzinfo=UTC)
CANDIDATES = 32_768
"""How many candidates a memo keeps at most: about 80 MB when all differ. Past it, the shape that came first goes."""
REQUESTS = 32_768
"""Of how many requests a memo knows the shape."""
SPARE = 512
"""How many candidates are kept of shapes that nobody asks for any more: the same job often comes again."""


def shape_of(request: Request) -> Request:
    """The request without what tells it from others of its kind: names, versions, times, and what no filter or term
    reads. Everything that is left may be read."""
    said = request.declared
    return replace(
        request,
        uid=WorkloadUid(""),
        name="",
        job_kind="",
        job_name="",
        created_at=_NEVER,
        waiting_since=_NEVER,
        resource_version="",
        attempt=min(request.attempt, 2) if said.checkpoint is not None else 0,
        avoided=(),
        declared=Declaration(
            workload_class=said.workload_class,
            data=said.data,
            expected_duration_s=said.expected_duration_s,
            clusters=said.clusters,
            max_cost_usd_micro=said.max_cost_usd_micro,
            outputs=_store_of(said.outputs),
            checkpoint=_store_of(said.checkpoint),
            checkpoint_interval_s=said.checkpoint_interval_s if said.checkpoint is not None else None,
            outputs_bytes=said.outputs_bytes if said.outputs is not None else None,
            checkpoint_bytes=said.checkpoint_bytes if said.checkpoint is not None else None,
            users=said.users,
            max_round_trip_ms=said.max_round_trip_ms,
        ),
    )


def _store_of(to: Destination | None) -> Destination | None:
    """Where in a store something goes changes neither what is legal nor what it costs."""
    return Destination(to.store, "") if to is not None else None


@dataclass(slots=True)
class _Weighed:
    """What was found of a candidate, without the age of its view. Its digest is made when somebody asks for it."""

    body: Candidate
    _digest: str | None = field(default=None, compare=False)

    @property
    def digest(self) -> str:
        if self._digest is None:
            self._digest = body_digest(self.body)
        return self._digest


@dataclass(slots=True)
class _Lane:
    """One cluster over time. `changed` and `aged` are the memo's count when its candidates, or only the age of its
    view, last became others. Digests are made when somebody asks for them."""

    ground: Ground
    changed: int
    aged: int
    _view_digest: str | None = None
    _digest: str | None = None

    @property
    def view_digest(self) -> str:
        if self._view_digest is None:
            self._view_digest = view_digest(self.ground.cluster, self.ground.index)
        return self._view_digest

    @property
    def digest(self) -> str:
        if self._digest is None:
            self._digest = ground_digest(self.ground.cluster, self.view_digest, self.ground.holds)
        return self._digest

    def stamped(self, body: Candidate) -> Candidate:
        return stamped(body, self.ground.cluster, self.view_digest)

    def promise(self, holds: tuple[Hold, ...], count: int) -> None:
        """Other promises count here from now on."""
        known = len(self.ground.holds)
        if self._digest is not None and holds[:known] == self.ground.holds:
            for hold in holds[known:]:
                self._digest = with_promise(self._digest, hold)
        else:
            self._digest = None
        self.ground = Ground(self.ground.cluster, self.ground.index, holds)
        self.changed = count


@dataclass(slots=True)
class _Field:
    """All candidates of one shape, as of a count of the memo."""

    shape: Request
    weighed: tuple[_Weighed, ...] = ()
    at: int = -1
    shown_at: int = -1
    candidates: tuple[Candidate, ...] = ()
    """As of `shown_at` with the age of their views: only who is shown them asks for that."""
    eligible: tuple[Candidate, ...] = ()
    full: tuple[Candidate, ...] = ()
    digest: str = ""
    appraisals: Appraisals = field(default_factory=Appraisals)
    era: int = -1
    """The memo's when these were begun."""


class _Asked(NamedTuple):
    """A request and its shape. `told` is what was weighed of the candidates it was last given, where they were its
    shape's and not its own."""

    request: Request
    digest: str
    field: _Field
    told: tuple[_Weighed, ...] | None = None


class Anew(NamedTuple):
    """The candidates of a request before and after they were weighed again."""

    before: tuple[Candidate, ...]
    after: tuple[Candidate, ...]

    def differ_in_amounts(self) -> bool:
        """Whether each can still be chosen, or waited for, exactly where and as it could before."""
        same = len(self.before) == len(self.after)
        return same and all(one.like(two) for one, two in zip(self.before, self.after, strict=True))


@dataclass(slots=True)
class CandidateMemo:
    """What a loop remembers between decisions. It may be given any snapshot, policy and time after any other."""

    views: ViewIndex = field(default_factory=ViewIndex)
    shape: Callable[[Request], Request] = shape_of
    window: Callable[[Policy, datetime], Hashable] = window_of
    _count: int = 0
    """Grows whenever anything that a candidate depends on has changed."""
    _lanes: list[_Lane] = field(default_factory=list)
    _places: dict[ClusterName, int] = field(default_factory=dict)
    _clusters: tuple[ClusterSnapshot, ...] | None = None
    _policy: Policy | None = None
    _window: Hashable = None
    _era: int = 0
    """Grows with every other policy or window."""
    _book: HoldBook = field(default_factory=HoldBook)
    _foreign: frozenset[Hashable] = frozenset()
    _snapshot_digest: tuple[int, str] = (-1, "")
    _fields: dict[Request, _Field] = field(default_factory=dict)
    _asked: dict[WorkloadUid, _Asked] = field(default_factory=dict)
    _changed: int = 0
    """The count at which, last, something changed that is more than the age of a view."""
    _looked: tuple[tuple[ClusterSnapshot, ...], tuple[Hold, ...], Policy, tuple[datetime, int]] | None = None

    def slate(self, setting: Setting, snapshot: Snapshot, weigh: Weigh) -> Slate:
        """The candidates of a decision; the same as `plain_slate`."""
        for _ in self.steps(setting, snapshot, weigh):
            pass
        asked = self._asked[setting.request.uid]
        found = asked.field
        self._show(found)
        summary = (found.candidates, found.eligible, found.full, found.digest)
        personal = self._personal(setting.request)
        if personal:
            weighed, candidates = list(found.weighed), list(found.candidates)
            for at in personal:
                weighed[at] = self._weigh(self._lanes[at], setting, weigh)
                candidates[at] = self._lanes[at].stamped(weighed[at].body)
            summary = _summary(weighed, candidates)
        told = found.weighed if not personal else None
        if asked.told is not told:
            self._asked[setting.request.uid] = asked._replace(told=told)
        return Slate(*summary, self._seen(), asked.digest)

    def steps(self, setting: Setting, snapshot: Snapshot, weigh: Weigh) -> Iterator[None]:
        """Do what `slate` will need, a cluster at a time, so that a caller can do something else in between.

        Nothing may be asked of the memo until the last step is done.
        """
        self.look(snapshot, setting.policy, setting.now)
        found = self._ask(setting.request).field
        if found.at != self._count:
            yield from self._refresh(found, setting, weigh)

    def unchanged(self, request: Request) -> bool:
        """Whether all candidates of this very request are, but for the age of what was seen, as in the last `slate`
        for it. As of the last `look`."""
        asked = self._asked.get(request.uid)
        if asked is None or asked.request is not request or asked.told is None or self._book.has(request.uid):
            return False
        return asked.field.at >= self._changed and asked.told == asked.field.weighed

    def found_again(self, request: Request) -> bool:
        """Whether all candidates of this very request, weighed anew since (`steps`), came out as in its last `slate`,
        and would at any other instant. Not so where others are to be stopped: what they lose grows with time."""
        asked = self._asked.get(request.uid)
        if asked is None or asked.request is not request or asked.told is None or self._personal(request):
            return False
        same = asked.field.at == self._count and asked.told == asked.field.weighed
        return same and not any(found.body.preempts for found in asked.field.weighed)

    def places(self, request: Request) -> tuple[Candidate, ...] | None:
        """Where this very request, which was told to wait, fits now, where that is known without weighing it anew and
        nothing else of its last `slate` has changed; None: it must be weighed. As of the last `look`."""
        return None

    def weighed_anew(self, request: Request) -> Anew | None:
        """The candidates of this very request as `steps` just found them, and as in its last `slate`, for who waits and
        may be told of them later; None: whoever asks is to be told at once."""
        return None

    def told(self, request: Request) -> None:
        """What was just found of the candidates of this request stands for its last `slate`."""
        asked = self._asked[request.uid]
        self._asked[request.uid] = asked._replace(told=asked.field.weighed)

    def keep(self, alive: Container[WorkloadUid]) -> None:
        """Forget the requests of workloads that are gone, and the shapes that were theirs alone, all but the newest:
        a daemon that runs for a year must not remember every job of it."""
        gone = [uid for uid in self._asked if uid not in alive]
        for uid in gone:
            del self._asked[uid]
        spare = SPARE // max(1, len(self._lanes))
        if not gone or len(self._fields) <= spare:
            return
        used = {id(asked.field) for asked in self._asked.values()}
        idle = [shape for shape, found in self._fields.items() if id(found) not in used]
        for shape in idle[: max(0, len(idle) - spare)]:
            del self._fields[shape]

    # --- the world ---

    @property
    def changed(self) -> int:
        """Grows whenever something changes that is more than the age of a view. As of the last `look`."""
        return self._changed

    def look(self, snapshot: Snapshot, policy: Policy, now: datetime) -> None:
        """Find out what has changed since the last look, cluster by cluster."""
        looked, at = self._looked, (now, snapshot.wall_ahead_s)
        same = looked is not None and snapshot.clusters is looked[0] and snapshot.holds is looked[1]
        if looked is not None and same and policy is looked[2] and at == looked[3]:
            return
        self._looked = (snapshot.clusters, snapshot.holds, policy, at)
        window = self.window(policy, later(now, snapshot.wall_ahead_s))
        anew = policy is not self._policy or window != self._window
        self._era += anew
        if snapshot.clusters is not self._clusters:
            self._look_at(snapshot.clusters, everywhere=anew)
            self._book.forget()
        elif anew:
            self._look_at(snapshot.clusters, everywhere=True)
        if policy is not self._policy:
            self._asked = {}  # which workloads an exception names, and so their shapes, may be others now
        self._policy, self._window = policy, window
        for cluster, holds in self._book.changes(snapshot, now):
            self._promised(cluster, holds)

    def _look_at(self, clusters: tuple[ClusterSnapshot, ...], *, everywhere: bool) -> None:
        ordered = sorted(clusters, key=lambda c: c.name)
        if [c.name for c in ordered] != list(self._places):
            self._start([c.name for c in ordered])
        before: list[_Lane | None] = list(self._lanes)
        before = before or [None for _ in ordered]
        self._count += 1
        self._lanes = [self._lane(c, old, everywhere) for c, old in zip(ordered, before, strict=True)]
        self._clusters = clusters
        self._foreign = self._foreign_names(before)

    def _start(self, names: Sequence[ClusterName]) -> None:
        """Another set of clusters: nothing that is remembered has a place in it."""
        self._places = {name: at for at, name in enumerate(names)}
        self._lanes, self._fields, self._asked = [], {}, {}
        self._book.forget()

    def _lane(self, cluster: ClusterSnapshot, old: _Lane | None, everywhere: bool) -> _Lane:
        index = self.views.of(cluster)
        holds = old.ground.holds if old is not None else ()
        ground = Ground(cluster, index, holds)
        if old is None or everywhere or not _alike(old.ground, ground):
            self._changed = self._count
            return _Lane(ground, self._count, self._count)
        if old.ground.index is not index:
            self._changed = self._count
            return _Lane(ground, old.changed, self._count)
        if not _as_old(old.ground.cluster, cluster):
            return _Lane(ground, old.changed, self._count)
        old.ground = ground
        return old

    def _foreign_names(self, before: Sequence[_Lane | None]) -> frozenset[Hashable]:
        """All names of work that is not ours, on any cluster; made anew only where some cluster's have changed."""
        now = [lane.ground.index.foreign for lane in self._lanes if lane.ground.index is not None]
        then = [old.ground.index.foreign for old in before if old is not None and old.ground.index is not None]
        if len(now) == len(then) and all(a is b for a, b in zip(now, then, strict=True)):
            return self._foreign
        return frozenset(name for work in now for names in (work.workloads, work.jobs) for name in names)

    def _promised(self, cluster: ClusterName, holds: tuple[Hold, ...]) -> None:
        """Other promises count on a cluster now."""
        at = self._places.get(cluster)
        if at is None or self._lanes[at].ground.holds == holds:
            return
        self._count += 1
        self._lanes[at].promise(holds, self._count)
        self._changed = self._count

    def _seen(self) -> str:
        if self._snapshot_digest[0] != self._count:
            self._snapshot_digest = (self._count, digest_of_all(lane.digest for lane in self._lanes))
        return self._snapshot_digest[1]

    # --- the request ---

    def _ask(self, request: Request) -> _Asked:
        known = self._asked.get(request.uid)
        if known is not None and known.request is request:
            return known
        shape = self.shape(request)
        if self._policy is not None and request.key in named_workloads(self._policy):
            shape = replace(shape, name=request.name)
        found = self._fields.get(shape)
        if found is None:
            found = self._fields[shape] = _Field(shape)
        if len(self._asked) >= REQUESTS and known is None:
            del self._asked[next(iter(self._asked))]
        asked = self._asked[request.uid] = _Asked(request, digest_of(request), found)
        return asked

    def _refresh(self, found: _Field, setting: Setting, weigh: Weigh) -> Iterator[None]:
        """Weigh the shape where something has changed since it was last asked for, and nowhere else."""
        if found.era != self._era:
            found.appraisals, found.era = Appraisals(), self._era
        shaped = setting.of_shape(found.shape, found.appraisals)
        if not found.weighed:
            self._make_room(found)
            weighed: list[_Weighed] = []
            for lane in self._lanes:
                weighed.append(self._weigh(lane, shaped, weigh))
                yield
        else:
            weighed = list(found.weighed)
            for at, lane in enumerate(self._lanes):
                if lane.changed > found.at:
                    anew = self._weigh(lane, shaped, weigh)
                    weighed[at] = anew if anew != weighed[at] else weighed[at]
                    yield
        if len(weighed) != len(found.weighed) or not all(map(is_, weighed, found.weighed)):
            found.weighed, found.shown_at = tuple(weighed), -1
            found.candidates = tuple([each.body for each in weighed])
        found.at = self._count

    def _show(self, found: _Field) -> None:
        """Say of each candidate as of when its cluster is seen now."""
        if found.shown_at < 0 or any(lane.aged > found.shown_at for lane in self._lanes):
            candidates = [lane.stamped(each.body) for lane, each in zip(self._lanes, found.weighed, strict=True)]
            found.candidates, found.eligible, found.full, found.digest = _summary(found.weighed, candidates)
        found.shown_at = self._count

    def _make_room(self, wanted: _Field) -> None:
        """Keep within the bound: the shapes that were weighed first are forgotten, and weighed again when asked for."""
        replaced = self._fields.pop(wanted.shape, wanted)
        self._fields[wanted.shape] = wanted
        gone = [replaced] if replaced is not wanted else []
        while len(self._fields) > max(1, CANDIDATES // max(1, len(self._lanes))):
            gone.append(self._fields.pop(next(iter(self._fields))))
        for each in gone:
            each.weighed, each.candidates, each.eligible, each.full, each.at = (), (), (), (), -1
            each.appraisals = Appraisals()

    def _weigh(self, lane: _Lane, setting: Setting, weigh: Weigh) -> _Weighed:
        return _Weighed(weigh_alone(setting, lane.ground, weigh))

    def _personal(self, request: Request) -> list[int]:
        """The clusters on which this request is somebody in particular."""
        named = (request.namespace, request.name) in self._foreign or any(
            (request.namespace, kind, request.job_name) in self._foreign for kind in (request.job_kind, "")
        )
        if not named and not request.avoided and not self._book.has(request.uid):
            return []
        return [at for at, lane in enumerate(self._lanes) if lane.ground.knows(request)]


def _alike(old: Ground, new: Ground) -> bool:
    """Whether a cluster gives the same candidates as before, promises aside."""
    before, after = old.cluster, new.cluster
    if before.link is not after.link or before.multikueue != after.multikueue or before.cached != after.cached:
        return False
    if old.index is None or new.index is None or not old.index.weighs_like(new.index):
        return old.index is new.index
    if after.link is Link.CONNECTED:
        return True
    one, other = before.worker, after.worker
    return one is other or (
        one is not None and other is not None and (one.observed_at, one.error) == (other.observed_at, other.error)
    )


def _as_old(before: ClusterSnapshot, after: ClusterSnapshot) -> bool:
    """Whether two views of the same content are of the same age."""
    one, other = before.worker, after.worker
    if one is None or other is None:
        return one is other
    return (one.observed_at, one.generation, one.error) == (other.observed_at, other.generation, other.error)


def _summary(
    weighed: Sequence[_Weighed], candidates: Sequence[Candidate]
) -> tuple[tuple[Candidate, ...], tuple[Candidate, ...], tuple[Candidate, ...], str]:
    return (
        tuple(candidates),
        tuple([candidate for candidate in candidates if candidate.eligible]),
        tuple([candidate for candidate in candidates if waits_for_others(candidate)]),
        digest_of_all([entry.digest for entry in weighed]),
    )
