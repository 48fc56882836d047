"""The answer to "why is my job where it is, or nowhere?", from the live fleet or from records alone."""

from __future__ import annotations

from collections.abc import Sequence

from dispatcher.core import explain
from dispatcher.core.decision import Decision
from dispatcher.core.energy import EndedRun
from dispatcher.core.errors import EntrepotError
from dispatcher.core.explain_energy import run_text
from dispatcher.core.explain_findings import finding_text
from dispatcher.core.ports import Store
from dispatcher.core.workload import HubWorkload
from dispatcher.web import decisions as shown
from dispatcher.web.look import Look, problem_views
from dispatcher.web.models import ClusterAge, Job, StateCode, WhyView
from dispatcher.web.models_energy import RunView
from dispatcher.web.models_law import FindingView
from dispatcher.web.problems import ProblemError
from dispatcher.web.recorded import repeated
from dispatcher.web.rooms import gaps
from dispatcher.web.status import age_s, link_text

HISTORY = 20


async def find(look: Look, store: Store, namespace: str, name: str, kind: str | None) -> HubWorkload | str:
    """The live Workload meant, or the key under which decisions of a gone one are kept.

    Raises:
        ProblemError: 404 with near names, or 409 when several jobs of different kinds have that name.
    """
    found = look.named(namespace, name, kind)
    if len(found) > 1:
        names = [f"{job.kind.lower()}/{job.name}" for w in found if (job := look.job(w)) is not None]
        fix = "name the kind (?kind=jobset), or the Workload itself"
        raise ProblemError(409, "ambiguous-name", f"{namespace}/{name} is the name of {len(found)} jobs", fix, names)
    if found:
        return found[0]
    key = f"{namespace}/{name}"
    if await store.decisions_of(key, 1):
        return key
    near = look.near(name, namespace)
    meant = f": did you mean {', '.join(near)}?" if near else ""
    raise ProblemError(
        404,
        "no-such-workload",
        f"there is no job or Workload {key} on the hub, and no decision about one{meant}",
        "check namespace and name; `entrepot queue` lists what there is. A job without a queue label is not seen here",
        near,
    )


async def history_of(store: Store, key: str) -> tuple[Sequence[Decision], str | None]:
    """The kept decisions, newest first, or why they cannot be read: a broken store must not hide the live answer."""
    try:
        return await store.decisions_of(key, HISTORY), None
    except EntrepotError as error:
        return (), str(error)


async def runs_of(store: Store, key: str) -> tuple[RunView, ...]:
    """What its ended runs used, newest first; none where the store does not answer."""
    try:
        return runs_shown(await store.ended_runs(key, HISTORY))
    except EntrepotError:
        return ()


def runs_shown(runs: Sequence[EndedRun]) -> tuple[RunView, ...]:
    return tuple(
        RunView(
            cluster=run.drawn.cluster,
            begun_at=run.begun_at,
            ended_at=run.ended_at,
            gpus=run.gpus,
            watt_hours=run.watt_hours,
            co2_grams=run.co2_grams,
            text=run_text(run),
        )
        for run in runs
    )


def newest(look: Look, workload: HubWorkload, history: Sequence[Decision]) -> Decision | None:
    """The newest decision on this very Workload: memory is ahead of the store for waits that repeat."""
    own = [d for d in history if d.workload == workload.uid]
    return look.state.latest.get(workload.uid) or (own[0] if own else None)


async def why(look: Look, store: Store, workload: HubWorkload) -> WhyView:
    history, history_error = await history_of(store, workload.key)
    latest = newest(look, workload, history)
    told = look.summary(workload, latest)
    waiting = told.state.code in (StateCode.WAITING, StateCode.HELD, StateCode.NOMINATED)
    return WhyView(
        namespace=workload.namespace,
        name=workload.name,
        job=told.job,
        workload=told,
        headline=_headline(told.state.text, told.reason),
        decision=shown.full(latest, repeated(latest, history)) if latest is not None else None,
        counterfactuals=shown.counterfactuals(latest) if latest is not None else (),
        waits_for=shown.waits_for(latest) if latest is not None and waiting else (),
        waiting_since=workload.quota_reserved_at if waiting else None,
        problems=problem_views(look.state.problems.get(workload.uid, ())),
        findings=_findings(look, workload),
        gaps=gaps(look, workload, latest) if latest is not None and waiting else (),
        data_age=_ages(look, latest),
        policy_digest=look.state.policy.digest,
        policy_changed=latest is not None and latest.policy_digest != look.state.policy.digest,
        history=tuple(shown.summary(d) for d in history),
        history_error=history_error,
        from_records=False,
        runs=await runs_of(store, workload.key),
    )


def why_from_records(
    history: Sequence[Decision],
    runs: tuple[RunView, ...] = (),
    *,
    from_records: bool,
    policy_digest: str | None = None,
) -> WhyView:
    """The same answer for a workload that is no longer (or cannot be) seen; `history` is newest first, not empty."""
    latest = history[0]
    namespace, _, name = latest.key.partition("/")
    return WhyView(
        namespace=namespace,
        name=name,
        job=Job(kind=latest.job_kind, name=latest.job_name),
        workload=None,
        headline=explain.sentence(latest),
        decision=shown.full(latest),
        counterfactuals=shown.counterfactuals(latest),
        waits_for=shown.waits_for(latest),
        waiting_since=latest.waiting_since if latest.chosen is None else None,
        problems=(),
        data_age=tuple(
            ClusterAge(
                cluster=c.cluster,
                link=None,
                age_s=None,
                decided_with_age_s=age_s(c.observed_at, latest.decided_at) if c.observed_at is not None else None,
                text="",
            )
            for c in latest.candidates
        ),
        policy_digest=policy_digest,
        policy_changed=policy_digest is not None and policy_digest != latest.policy_digest,
        history=tuple(shown.summary(d) for d in history),
        history_error=None,
        from_records=from_records,
        runs=runs,
    )


def _findings(look: Look, workload: HubWorkload) -> tuple[FindingView, ...]:
    """What was found wrong with it where it is; the law first."""
    found = [f for f in (*look.state.law_findings, *look.state.findings) if f.workload == workload.uid]
    return tuple(
        FindingView(code=f.code.value, cluster=f.cluster, since=f.since, text=finding_text(f, look.now)) for f in found
    )


def _headline(state: str, reason: str) -> str:
    return state if reason == state else f"{state}. {reason}"


def _ages(look: Look, latest: Decision | None) -> tuple[ClusterAge, ...]:
    ages = []
    for seen in look.snapshot.clusters:
        observed = seen.worker.observed_at if seen.worker is not None else None
        found = latest.candidate(seen.name) if latest is not None else None
        used = found.observed_at if found is not None else None
        ages.append(
            ClusterAge(
                cluster=seen.name,
                link=seen.link,
                age_s=age_s(observed, look.now) if observed is not None else None,
                decided_with_age_s=age_s(used, latest.decided_at) if used is not None and latest is not None else None,
                text=link_text(seen, look.now),
            )
        )
    return tuple(ages)
