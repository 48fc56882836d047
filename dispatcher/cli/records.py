"""Answers from the daemon's records, read-only, while the daemon is down."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from dispatcher.cli.client import ambiguous
from dispatcher.cli.errors import CliError, ExitCode
from dispatcher.cli.options import JobRef
from dispatcher.core.decision import Decision, Outcome
from dispatcher.core.errors import EntrepotError, Fatal
from dispatcher.core.ids import ClusterName
from dispatcher.store import SqlStore, open_records
from dispatcher.web import decisions as shown
from dispatcher.web.models import DecisionList, DecisionView, WhyNotView, WhyView
from dispatcher.web.why import HISTORY, why_from_records

T = TypeVar("T")


def why(file: Path, ref: JobRef) -> WhyView:
    return why_from_records(_history(file, ref, HISTORY), from_records=True)


def why_not(file: Path, ref: JobRef, cluster: str) -> WhyNotView:
    return shown.why_not(_history(file, ref, 1)[0], ClusterName(cluster), from_records=True)


def decisions(file: Path, ref: JobRef | None, limit: int, cluster: str | None, outcome: Outcome | None) -> DecisionList:
    if ref is not None:
        found: Sequence[Decision] = _history(file, ref, limit)
    else:
        wanted = ClusterName(cluster) if cluster is not None else None
        found = _read(file, lambda store: store.recent(limit, wanted, outcome))
    return DecisionList(items=tuple(shown.summary(decision) for decision in found))


def decision(file: Path, decision_id: str) -> DecisionView | None:
    from dispatcher.core.ids import DecisionId

    found = _read(file, lambda store: store.decision(DecisionId(decision_id)))
    return shown.full(found) if found is not None else None


def _history(file: Path, ref: JobRef, limit: int) -> Sequence[Decision]:
    async def look(store: SqlStore) -> Sequence[Decision]:
        namespaced = ref.namespace is not None
        keys = [f"{ref.namespace}/{ref.name}"] if namespaced else await store.keys_named(ref.name)
        found = {key: await store.decisions_of(key, limit) for key in keys}
        jobs = {(d[0].key.partition("/")[0], d[0].job_name) for d in found.values() if d and _is_kind(d[0], ref.kind)}
        if len(jobs) > 1:
            raise ambiguous(ref, [f"{namespace}/{job}" for namespace, job in sorted(jobs)])
        return next((d for d in found.values() if d and _is_kind(d[0], ref.kind)), ())

    history = _read(file, look)
    if not history:
        fix = "check namespace and name; `entrepot decisions --store FILE` lists what is recorded"
        raise CliError(f"no decision about {ref.text} is recorded", where=str(file), fix=fix, code=ExitCode.NOT_FOUND)
    return history


def _is_kind(decision: Decision, kind: str | None) -> bool:
    return kind in (None, "workload", decision.job_kind.lower())


def _read(file: Path, look: Callable[[SqlStore], Awaitable[T]]) -> T:
    async def run() -> T:
        store = await open_records(file)
        try:
            return await look(store)
        finally:
            await store.close()

    try:
        return asyncio.run(run())
    except EntrepotError as error:
        fix = error.fix if isinstance(error, Fatal) else "look at the file and its folder, then ask again"
        raise CliError(str(error), where=str(file), fix=fix) from None
