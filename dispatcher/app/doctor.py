"""The doctor's errand: blueprint and fleet looked at, facts judged. It reads, and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connectors.kubernetes import connect_hub_client, source_of
from connectors.kubernetes.survey import SurveyPlan, survey
from dispatcher.config import LoadResult, Severity, load_blueprint
from dispatcher.core.doctor import Finding, diagnose
from dispatcher.core.doctor.check_data import CATALOG
from dispatcher.core.doctor.facts import BlueprintFacts, DaemonFacts, FleetFacts, LintFact, PlannedQueue
from dispatcher.core.policy import Credentials, Policy
from dispatcher.core.ports import Clock


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """`kubeconfig` None: the pod's own account. `blueprint` None: judge the fleet alone."""

    kubeconfig: Path | None
    blueprint: Path | None
    kueue_namespace: str = "kueue-system"
    cluster_deadline_s: float = 60.0
    daemon: DaemonFacts | None = None
    """What a daemon was heard to say of its data; None: nobody asked one."""


@dataclass(frozen=True, slots=True)
class Examination:
    facts: FleetFacts
    findings: tuple[Finding, ...]

    @property
    def hub_error(self) -> str | None:
        """Why the hub could not be reached; None when it was."""
        return self.facts.hub.cluster.error


async def examine(options: DoctorOptions, clock: Clock, progress: Callable[[str], None]) -> Examination:
    """Look and judge. Raises nothing for what clusters or files do: that is what findings are for."""
    blueprint: BlueprintFacts | None = None
    if options.blueprint is not None:
        progress(f"reading {options.blueprint}")
        blueprint = blueprint_facts(await asyncio.to_thread(load_blueprint, options.blueprint, clock.now()))
    policy = blueprint.policy if blueprint is not None else None
    credentials = {str(name): each.credentials for name, each in policy.clusters.items()} if policy is not None else {}
    hub = connect_hub_client(options.kubeconfig, clock)

    async def get_secret(namespace: str, name: str) -> Mapping[str, Any]:
        return await hub.get(f"/api/v1/namespaces/{namespace}/secrets/{name}")

    keys = data_keys(policy) if policy is not None else {}
    plan = SurveyPlan(credentials, options.kueue_namespace, options.cluster_deadline_s, keys)
    try:
        found, workers = await survey(hub, lambda each: source_of(each, get_secret), plan, clock, progress)
    finally:
        await hub.close()
    facts = FleetFacts(clock.now(), found, workers, blueprint, options.daemon)
    return Examination(facts, diagnose(facts))


def data_keys(policy: Policy) -> dict[str, Credentials]:
    """The keys that data.yaml names, by whose they are: the catalog's, and those of stores."""
    stores = {str(name): store.objects for name, store in policy.stores.items() if store.objects is not None}
    found = {name: objects.key for name, objects in stores.items() if objects.key is not None}
    token = policy.catalog.source.token if policy.catalog is not None else None
    return {**found, CATALOG: token} if token is not None else found


def blueprint_facts(result: LoadResult) -> BlueprintFacts:
    """What the doctor needs of a blueprint, valid or not."""
    lint = tuple(
        LintFact(
            file=problem.file,
            line=problem.line,
            column=problem.column,
            error=problem.severity is Severity.ERROR,
            rule=f"{problem.value}: {problem.rule}" if problem.value else problem.rule,
            fix=problem.fix,
        )
        for problem in result.problems
    )
    signed = result.sealed.manifest is not None and result.sealed.signature is not None
    source = result.blueprint
    if source is None:
        return BlueprintFacts(result.folder, None, lint, signed=signed)
    queues = tuple(
        PlannedQueue(name, queue.namespace, queue.local_queue) for name, queue in source.queues.queues.items()
    )
    bursting = frozenset(
        (name, pool.flavor) for name, cluster in source.fleet.clusters.items() for pool in cluster.node_pools.values()
    )
    return BlueprintFacts(result.folder, result.policy, lint, queues, bursting, signed)
