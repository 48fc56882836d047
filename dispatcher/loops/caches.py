"""Keeps what decisions have brought into the data caches of clusters (core/caches.py, ADR 25).

A nomination enters when it is stored. What becomes of it is read from the hub, and stored with its intent as soon as
it is known: there, or ended too early. So a daemon that starts works out the same from the newest decisions of each
cluster with a cache, and of those that nobody could look at in time it claims nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime

from dispatcher.core.caches import VISITS, Bringing, Visit, contents, in_order, looked_at, there, visit_of
from dispatcher.core.decision import Decision
from dispatcher.core.errors import Refused
from dispatcher.core.ids import ClusterName, DecisionId, WorkloadUid
from dispatcher.core.policy import Policy
from dispatcher.core.ports import IntentState, Store
from dispatcher.core.snapshot import HubView
from dispatcher.state import FleetState

_STORED = {Bringing.THERE: IntentState.BROUGHT, Bringing.ENDED: IntentState.ENDED}


@dataclass(slots=True)
class CacheKeeper:
    """Owns `FleetState.cached`."""

    state: FleetState
    _visits: dict[ClusterName, tuple[Visit, ...]] = field(default_factory=dict)
    _policy: Policy | None = None
    """That whose cache sizes `cached` was worked out with."""

    async def recover(self, store: Store) -> None:
        """Work out anew from the store: the newest decisions of each cluster with a cache, and what became of them.

        Raises:
            Transient: the store did not answer.
        """
        self._visits = {}
        self.state.cached.clear()
        for name, site in sorted(self.state.policy.clusters.items()):
            if not site.cache_bytes:
                continue
            visits = [visit_of(decision) for decision in await store.recent(VISITS, cluster=name)]
            self._visits[name] = await _as_stored([v for v in visits if v is not None], store)
        self._work_out(self._visits)
        self._policy = self.state.policy

    def stored(self, decision: Decision) -> None:
        """A nomination is in the store, and about to be written."""
        visit = visit_of(decision)
        if visit is not None:
            self._visits[visit.cluster] = in_order([*self._visits.get(visit.cluster, ()), visit])
            self._work_out([visit.cluster])

    def dropped(self, decision: DecisionId) -> None:
        """A nomination was not made."""
        for name, visits in self._visits.items():
            left = tuple(visit for visit in visits if visit.decision != decision)
            if len(left) != len(visits):
                self._visits[name] = left
                self._work_out([name])

    async def settle(self, store: Store, open_rounds: Collection[WorkloadUid], now: datetime, term: int) -> None:
        """Look what became of what is on its way. Nominations that the view does not answer yet are left alone.

        Raises:
            Transient: the store did not take it; what it did not take is looked at again.
            Fenced: a later term has begun.
        """
        hub = self.state.hub_view()
        for name in sorted(self._visits):
            found = self._looked_at(name, hub, open_rounds, now)
            if found != self._visits[name]:
                for before, after in zip(self._visits[name], found, strict=True):
                    if after.state is not before.state:
                        with suppress(Refused):  # the store has forgotten it meanwhile: then so it stays
                            await store.mark(after.decision, _STORED[after.state], now, term)
                self._visits[name] = found
                self._work_out([name])
        if self._policy is not self.state.policy:
            self._work_out(self._visits)
            self._policy = self.state.policy

    def turns(self) -> list[datetime]:
        """When, by time alone, something that is on its way will be there."""
        found = [visit.there_at for visits in self._visits.values() for visit in visits if visit.pending]
        return [at for at in found if at is not None]

    def _looked_at(
        self, name: ClusterName, hub: HubView, open_rounds: Collection[WorkloadUid], now: datetime
    ) -> tuple[Visit, ...]:
        visits = self._visits[name]
        if not any(visit.pending for visit in visits):
            return visits
        newest = {visit.workload: visit.attempt for visit in visits}
        newest |= {uid: max(newest[uid], self.state.latest[uid].attempt) for uid in newest if uid in self.state.latest}
        found: list[Visit] = []
        for visit in visits:
            if visit.pending and visit.attempt < newest[visit.workload]:
                found.append(replace(visit, state=Bringing.ENDED))
            elif visit.workload in open_rounds:
                found.append(visit)
            else:
                found.append(looked_at(visit, hub.workloads.get(visit.workload), hub, now))
        return tuple(found)

    def _work_out(self, names: Collection[ClusterName]) -> None:
        for name in names:
            site = self.state.policy.clusters.get(name)
            self.state.cached[name] = contents(self._visits.get(name, ()), site.cache_bytes if site is not None else 0)


async def _as_stored(visits: list[Visit], store: Store) -> tuple[Visit, ...]:
    """Visits with what became of them as it is stored, in order; those whose nomination was not made are none."""
    states = await store.states([visit.decision for visit in visits])
    found = []
    for visit in visits:
        state, since = states.get(visit.decision, (IntentState.ABANDONED, visit.at))
        if state is IntentState.BROUGHT:
            found.append(there(visit, since))
        elif state is IntentState.ENDED:
            found.append(replace(visit, state=Bringing.ENDED))
        elif state is not IntentState.ABANDONED:
            found.append(visit)
    return in_order(found)
