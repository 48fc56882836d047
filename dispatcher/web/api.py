"""The routes. Read-only: every one is a GET, none changes anything, on the hub or here."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, FastAPI, Path, Query, Response

from dispatcher.core.decision import Decision, Outcome
from dispatcher.core.ids import ClusterName, DecisionId
from dispatcher.core.ports import Store
from dispatcher.core.workload import HubWorkload
from dispatcher.state import FleetState
from dispatcher.web import decisions as shown
from dispatcher.web import fleet, offline, shadow, vitals, why
from dispatcher.web.data import DataSetList, data_sets
from dispatcher.web.look import Look
from dispatcher.web.models import (
    BlueprintView,
    ClusterList,
    DecisionList,
    DecisionView,
    HealthView,
    Job,
    Match,
    MatchList,
    Problem,
    ReadyView,
    StateCode,
    WhyNotView,
    WhyView,
    WorkloadList,
    WorkloadSummary,
)
from dispatcher.web.problems import MEDIA_TYPE, ProblemError, install
from dispatcher.web.recorded import find_decision, repeated, repeated_in
from dispatcher.web.status import age_s
from dispatcher.web.vitals import Answer, HealthSource

_LABEL = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
Namespace = Annotated[str, Path(pattern=_LABEL, description="a namespace of the hub")]
Name = Annotated[str, Path(pattern=_SUBDOMAIN, description="name of a Workload, or of its job")]
Cluster = Annotated[str, Path(pattern=_SUBDOMAIN, description="name of a cluster of the fleet")]
Kind = Annotated[str | None, Query(pattern=r"^[A-Za-z]{1,63}$", description="kind of the job, e.g. jobset")]
Limit = Annotated[int, Query(ge=1, le=1000)]

ERRORS: dict[int | str, dict[str, object]] = {
    status: {"model": Problem, "content": {MEDIA_TYPE: {}}} for status in (400, 404, 409, 503)
}
TITLE = "Entrepot"


def build_api(state: FleetState, store: Store, health: HealthSource) -> FastAPI:
    """The API on the daemon's own values. Which address it is served on, and to whom, is the server's business."""
    app = FastAPI(
        title=TITLE,
        version="v1",
        summary="Which cluster runs a job, and why. Read-only.",
        docs_url=None,
        redoc_url=None,
        # One schema per model: with two, a client could not use one class for what it reads and what it writes.
        separate_input_output_schemas=False,
    )
    install(app)
    app.include_router(_probes(state, health))
    app.include_router(_workloads(state, store))
    app.include_router(_reasons(state, store))
    app.include_router(_decisions(state, store))
    app.include_router(_fleet(state))
    app.include_router(offline.router(state, store, ERRORS))
    app.include_router(shadow.router(state, ERRORS))
    return app


def _probes(state: FleetState, health: HealthSource) -> APIRouter:
    router = APIRouter(tags=["probes"])

    @router.get("/healthz", response_model=HealthView, responses={503: {"model": HealthView}})
    async def healthz() -> Response:
        """503 with the dead or silent loop named: restart the daemon."""
        return _sent(vitals.healthz(health, state.footing, state.blueprint.errors))

    @router.get("/readyz", response_model=ReadyView, responses={503: {"model": ReadyView}})
    async def readyz() -> Response:
        """503 while it cannot dispatch yet; a restart does not help."""
        return _sent(vitals.readyz(health))

    @router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Prometheus exposition."""
        return _sent(vitals.metrics(health))

    return router


def _sent(answer: Answer) -> Response:
    return Response(answer.body, answer.status, media_type=answer.media_type)


def _workloads(state: FleetState, store: Store) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["workloads"], responses=ERRORS)

    @router.get("/workloads")
    async def workloads(
        namespace: Annotated[str | None, Query(pattern=_LABEL)] = None,
        state_code: Annotated[StateCode | None, Query(alias="state")] = None,
        limit: Limit = 200,
        offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    ) -> WorkloadList:
        """What the hub has, in deciding order: who waits and why, who runs and where, by the worker's own evidence."""
        look = Look.at(state)
        chosen = [w for w in look.workloads() if namespace in (None, w.namespace)]
        if state_code is not None:
            chosen = [w for w in chosen if look.state_of(w).code is state_code]
        seen = look.hub.observed_at
        return WorkloadList(
            now=look.now,
            hub_synced=look.hub.synced,
            hub_link=state.hub_link(look.now),
            hub_age_s=age_s(seen, look.now) if seen is not None else None,
            total=len(chosen),
            items=tuple(look.summary(w) for w in chosen[offset : offset + limit]),
        )

    @router.get("/matches")
    async def matches(name: Annotated[str, Query(pattern=_SUBDOMAIN)], kind: Kind = None) -> MatchList:
        """What a bare name may stand for, in any namespace; live ones first, then those with decisions only."""
        look = Look.at(state)
        live = look.named(None, name, kind.lower() if kind else None)
        items = [Match(namespace=w.namespace, name=w.name, job=look.job(w), live=True) for w in live]
        if not items:
            items = [_gone(d) for key in await store.keys_named(name) for d in await store.decisions_of(key, 1)]
        return MatchList(items=tuple(items), near=() if items else look.near(name))

    @router.get("/workloads/{namespace}/{name}")
    async def workload(namespace: Namespace, name: Name, kind: Kind = None) -> WorkloadSummary:
        """One live workload."""
        look = Look.at(state)
        found = await why.find(look, store, namespace, name, kind.lower() if kind else None)
        if isinstance(found, str):
            fix = f"its decisions are kept: ask /v1/why/{found}"
            raise ProblemError(404, "workload-gone", f"{found} is no longer on the hub", fix)
        history, _ = await why.history_of(store, found.key)
        return look.summary(found, why.newest(look, found, history))

    return router


def _reasons(state: FleetState, store: Store) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["reasons"], responses=ERRORS)

    @router.get("/why/{namespace}/{name}")
    async def why_(namespace: Namespace, name: Name, kind: Kind = None) -> WhyView:
        """Why it is where it is, or nowhere: costs, rejections, what would have changed it, history, ages."""
        look = Look.at(state)
        found = await why.find(look, store, namespace, name, kind.lower() if kind else None)
        if isinstance(found, HubWorkload):
            return await why.why(look, store, found)
        kept = await store.decisions_of(found, why.HISTORY)
        runs = await why.runs_of(store, found)
        return why.why_from_records(kept, runs, from_records=False, policy_digest=state.policy.digest)

    @router.get("/why-not/{namespace}/{name}/{cluster}")
    async def why_not(namespace: Namespace, name: Name, cluster: Cluster, kind: Kind = None) -> WhyNotView:
        """Why it is not on this cluster."""
        look = Look.at(state)
        found = await why.find(look, store, namespace, name, kind.lower() if kind else None)
        decision, repeats = await _newest_or_404(look, store, found)
        asked = ClusterName(cluster)
        if decision.candidate(asked) is None and not fleet.has_cluster(look, asked):
            fix = f"the fleet has {', '.join(look.cluster_names()) or 'no clusters'}"
            raise ProblemError(404, "no-such-cluster", f"no cluster {cluster}", fix, look.near_clusters(cluster))
        return shown.why_not(decision, asked, from_records=False, repeats=repeats)

    return router


async def _newest_or_404(look: Look, store: Store, found: HubWorkload | str) -> tuple[Decision, DecisionId | None]:
    """The newest decision, and the recorded one that it repeats."""
    key = found if isinstance(found, str) else found.key
    history, error = await why.history_of(store, key)
    latest = why.newest(look, found, history) if isinstance(found, HubWorkload) else (history[0] if history else None)
    if latest is not None:
        return latest, repeated(latest, history)
    if error is not None:
        raise ProblemError(503, "store-unavailable", error, "look at the disk of the daemon's store file; ask again")
    told = look.summary(found).reason if isinstance(found, HubWorkload) else "no longer on the hub"
    fix = f"`entrepot why {key}` says what it waits for before it can be decided on"
    raise ProblemError(404, "not-decided-yet", f"nothing has been decided on {key} yet: {told}", fix)


def _gone(decision: Decision) -> Match:
    namespace, _, name = decision.key.partition("/")
    return Match(namespace=namespace, name=name, job=Job(kind=decision.job_kind, name=decision.job_name), live=False)


def _decisions(state: FleetState, store: Store) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["decisions"], responses=ERRORS)

    @router.get("/decisions")
    async def decisions(
        limit: Limit = 50,
        cluster: Annotated[str | None, Query(pattern=_SUBDOMAIN, description="only those that chose it")] = None,
        outcome: Outcome | None = None,
    ) -> DecisionList:
        """Recorded decisions, newest first. A wait for the same reasons is recorded once."""
        wanted = ClusterName(cluster) if cluster is not None else None
        found = await store.recent(limit, wanted, outcome)
        return DecisionList(items=tuple(shown.summary(d) for d in found))

    @router.get("/decisions/of/{namespace}/{name}")
    async def decisions_of(namespace: Namespace, name: Name, kind: Kind = None, limit: Limit = 50) -> DecisionList:
        """All recorded decisions on one workload or job, newest first."""
        found = await why.find(Look.at(state), store, namespace, name, kind.lower() if kind else None)
        kept = await store.decisions_of(found if isinstance(found, str) else found.key, limit)
        return DecisionList(items=tuple(shown.summary(d) for d in kept))

    @router.get("/decisions/{decision_id}")
    async def decision(decision_id: Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}$")]) -> DecisionView:
        """One decision, complete. The beginning of its id is enough where no other begins so."""
        found = await find_decision(state, store, decision_id)
        return shown.full(found, await repeated_in(store, found))

    return router


def _fleet(state: FleetState) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["fleet"], responses=ERRORS)

    @router.get("/clusters")
    async def clusters() -> ClusterList:
        """Every cluster of the hub or the blueprint, with what it can give and how old that knowledge is."""
        look = Look.at(state)
        return ClusterList(now=look.now, items=fleet.clusters(look))

    @router.get("/data")
    async def data() -> DataSetList:
        """Every data set with its replicas: what is declared, and what was seen of it."""
        return data_sets(state)

    @router.get("/blueprint")
    async def blueprint() -> BlueprintView:
        """The policy in force, and what is wrong with the files on disk when they are refused."""
        return fleet.blueprint(state)

    return router
