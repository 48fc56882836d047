"""Answers from the daemon's records, read-only, while the daemon is down."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from dispatcher.cli.client import ambiguous
from dispatcher.cli.errors import CliError, ExitCode
from dispatcher.cli.options import JobRef
from dispatcher.core.decision import Decision, Outcome
from dispatcher.core.errors import EntrepotError, Fatal
from dispatcher.core.ids import SHORTEST_START, ClusterName, DecisionId
from dispatcher.core.replay import Record
from dispatcher.store import SqlStore, open_records
from dispatcher.store import shown as shown_name
from dispatcher.web import decisions as shown
from dispatcher.web.models import DecisionList, DecisionView, WhyNotView, WhyView
from dispatcher.web.recorded import LONGER, too_short
from dispatcher.web.why import HISTORY, runs_shown, why_from_records

T = TypeVar("T")


class Records:
    """The decisions in a store. Each answer opens it, reads, and closes it again. `where` names it without secrets."""

    def __init__(self, target: str) -> None:
        self._target = target
        self.where = shown_name(target)

    def why(self, ref: JobRef) -> WhyView:
        history = self._history(ref, HISTORY)
        runs = self._read(lambda store: store.ended_runs(history[0].key, HISTORY))
        return why_from_records(history, runs_shown(runs), from_records=True)

    def why_not(self, ref: JobRef, cluster: str) -> WhyNotView:
        return shown.why_not(self._history(ref, 1)[0], ClusterName(cluster), from_records=True)

    def decisions(self, ref: JobRef | None, limit: int, cluster: str | None, outcome: Outcome | None) -> DecisionList:
        if ref is not None:
            found = self._history(ref, limit)
        else:
            wanted = ClusterName(cluster) if cluster is not None else None
            found = self._read(lambda store: store.recent(limit, wanted, outcome))
        return DecisionList(items=tuple(shown.summary(decision) for decision in found))

    def decision(self, text: str) -> DecisionView | None:
        """The decision whose id is `text` or begins with it; None when there is none. Raises CliError on several, and
        on what is too short for a beginning."""

        async def look(store: SqlStore) -> Decision | None:
            exact = await store.decision(DecisionId(text))
            if exact is not None:
                return exact
            if len(text) < SHORTEST_START:
                raise CliError(too_short(text), where=self.where, fix=LONGER, code=ExitCode.USAGE)
            found = await store.ids_like(text)
            if len(found) > 1:
                what = f"the ids of {len(found)} decisions begin with {text}: {', '.join(found)}"
                raise CliError(what, where=self.where, fix="write more of the id", code=ExitCode.USAGE)
            return await store.decision(found[0]) if found else None

        one = self._read(look)
        return shown.full(one) if one is not None else None

    def record(self, decision_id: str) -> Record | None:
        """A decision with what it saw; None when there is none of that id, or its inputs are not kept."""
        return self._read(lambda store: store.record(DecisionId(decision_id)))

    def _history(self, ref: JobRef, limit: int) -> Sequence[Decision]:
        """Newest first, never empty. Raises CliError when nothing is recorded, or on several jobs of that name."""

        async def look(store: SqlStore) -> Sequence[Decision]:
            bare = ref.namespace is None
            keys = await store.keys_named(ref.name) if bare else [f"{ref.namespace}/{ref.name}"]
            found = [await store.decisions_of(key, limit) for key in keys]
            found = [history for history in found if history and _is_kind(history[0], ref.kind)]
            jobs = {(history[0].key.partition("/")[0], history[0].job_name) for history in found}
            if len(jobs) > 1:
                raise ambiguous(ref, [f"{namespace}/{job}" for namespace, job in sorted(jobs)])
            return found[0] if found else ()

        history = self._read(look)
        if not history:
            what, fix = f"no decision about {ref.text} is recorded", "check the name; `entrepot decisions` lists them"
            raise CliError(what, where=self.where, fix=fix, code=ExitCode.NOT_FOUND)
        return history

    def _read(self, look: Callable[[SqlStore], Awaitable[T]]) -> T:
        async def run() -> T:
            store = await open_records(self._target)
            try:
                return await look(store)
            finally:
                await store.close()

        try:
            return asyncio.run(run())
        except EntrepotError as error:
            fix = error.fix if isinstance(error, Fatal) else "look at the file and its folder, then ask again"
            raise CliError(str(error), where=self.where, fix=fix) from None


def _is_kind(decision: Decision, kind: str | None) -> bool:
    return kind in (None, "workload", decision.job_kind.lower())
