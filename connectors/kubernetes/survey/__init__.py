"""Reads what the doctor judges: hub first, then every worker side by side, all of it with calls that change nothing.

Each call and each cluster has a deadline. A cluster that cannot be reached is a fact, and never stops the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from connectors.kubernetes.client import ApiClient
from connectors.kubernetes.credentials import NoSource, Source
from connectors.kubernetes.survey.cluster import Wanted
from connectors.kubernetes.survey.hub import HubPlan, HubSurvey, read_hub
from connectors.kubernetes.survey.permissions import DAEMON_ON_WORKER, WISHED_ON_WORKER, multikueue_on_worker
from connectors.kubernetes.survey.worker import Given, denied_to, read_worker
from dispatcher.core.doctor.check_config import framework_kinds
from dispatcher.core.doctor.facts import HUB, ClusterFacts, Holder, HubFacts, KubeconfigFacts, KueueConfig, WorkerFacts
from dispatcher.core.errors import EntrepotError
from dispatcher.core.policy import Credentials
from dispatcher.core.ports import Clock

__all__ = ["Progress", "SourceOf", "SurveyPlan", "survey"]

Progress = Callable[[str], None]
SourceOf = Callable[[Credentials], Source]
"""How the blueprint's credentials of a worker become a source; the hub's client reads Secrets for it."""


@dataclass(frozen=True, slots=True)
class SurveyPlan:
    """`credentials`: the blueprint's, by cluster. Clusters without any are read by MultiKueue's own kubeconfig.
    `data_keys`: the blueprint's of catalog and stores."""

    credentials: Mapping[str, Credentials]
    kueue_namespace: str = "kueue-system"
    cluster_deadline_s: float = 60.0
    data_keys: Mapping[str, Credentials] = field(default_factory=dict)


async def survey(
    hub: ApiClient, source_of: SourceOf, plan: SurveyPlan, clock: Clock, progress: Progress
) -> tuple[HubFacts, tuple[WorkerFacts, ...]]:
    """Look at the whole fleet. Never raises for what a cluster does: `ClusterFacts.error` says it."""
    progress("reading the hub")
    found = await _hub(hub, plan, clock)
    known = found.facts.clusters
    names = sorted(plan.credentials if known is None else known)
    progress(f"reading {len(names)} workers: {', '.join(names)}" if names else "there are no workers")
    config = found.facts.cluster.config
    async with asyncio.TaskGroup() as group:
        tasks = []
        for name in names if found.facts.cluster.reachable else ():
            client = ApiClient(name, _source(name, found, source_of, plan), clock)
            tasks.append(group.create_task(_worker(name, client, _wanted(config, plan), (plan, clock, progress))))
        denied = group.create_task(_multikueue_accounts(found, plan, clock))
    workers = tuple(task.result() for task in tasks)
    return replace(found.facts, kubeconfigs=denied.result()), workers


def _source(name: str, found: HubSurvey, source_of: SourceOf, plan: SurveyPlan) -> Source:
    if name in plan.credentials:
        return source_of(plan.credentials[name])
    if name in found.kubeconfigs:
        return Given(found.kubeconfigs[name])
    return NoSource("there is no kubeconfig for it: describe the cluster in fleet.yaml, and give --blueprint")


def _wanted(config: KueueConfig | None, plan: SurveyPlan) -> Wanted:
    kinds = framework_kinds(config) if config is not None else ()
    groups = tuple(sorted({group for _, (group, _) in kinds if group}))
    return Wanted(plan.kueue_namespace, DAEMON_ON_WORKER, groups, optional=WISHED_ON_WORKER)


async def _hub(client: ApiClient, plan: SurveyPlan, clock: Clock) -> HubSurvey:
    try:
        async with asyncio.timeout(plan.cluster_deadline_s):
            return await read_hub(client, HubPlan(plan.credentials, plan.data_keys, plan.kueue_namespace), clock)
    except (EntrepotError, TimeoutError, BaseExceptionGroup) as error:
        return HubSurvey(HubFacts(ClusterFacts(HUB, error=_why_unread(error, plan))), {})


async def _worker(name: str, client: ApiClient, wanted: Wanted, by: tuple[SurveyPlan, Clock, Progress]) -> WorkerFacts:
    plan, clock, progress = by
    try:
        async with asyncio.timeout(plan.cluster_deadline_s):
            found = await read_worker(name, client, wanted, clock)
            progress(f"{name}: read")
            return found
    except (EntrepotError, TimeoutError, BaseExceptionGroup) as error:
        progress(f"{name}: not reached")
        return WorkerFacts(ClusterFacts(name, error=_why_unread(error, plan)))
    finally:
        await client.close()


async def _multikueue_accounts(found: HubSurvey, plan: SurveyPlan, clock: Clock) -> tuple[KubeconfigFacts, ...]:
    """MultiKueue's kubeconfigs with what their accounts lack on their workers."""
    config = found.facts.cluster.config
    enabled = framework_kinds(config) if config is not None and not config.problem else ()
    verbs = multikueue_on_worker(kind for _, kind in enabled if kind[0])

    async def one(kubeconfig: KubeconfigFacts) -> KubeconfigFacts:
        content = found.kubeconfigs.get(kubeconfig.cluster)
        if kubeconfig.holder is not Holder.MULTIKUEUE or content is None or kubeconfig.faults:
            return kubeconfig
        try:
            async with asyncio.timeout(plan.cluster_deadline_s):
                return replace(kubeconfig, denied=await denied_to(kubeconfig.cluster, content, verbs, clock))
        except (EntrepotError, TimeoutError):
            return kubeconfig

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(kubeconfig)) for kubeconfig in found.facts.kubeconfigs]
    return tuple(task.result() for task in tasks)


def _why_unread(error: BaseException, plan: SurveyPlan) -> str:
    """Why a cluster was not read, in one line."""
    if isinstance(error, TimeoutError):
        return f"it was not read within {plan.cluster_deadline_s:g} s"
    if isinstance(error, BaseExceptionGroup):
        expected, others = error.split(EntrepotError)
        if others is not None:
            raise error  # a bug of ours keeps its traceback
        return _why_unread(expected.exceptions[0], plan) if expected is not None else str(error)
    return str(error)
