"""The hub's Kueue configuration: dispatcher, clearing policy, gates, timeouts, frameworks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dispatcher.core.doctor.facts import HUB, FleetFacts, HubFacts, KueueConfig, PolicyFault
from dispatcher.core.doctor.findings import Code, Finding, Severity, Where, found
from dispatcher.core.doctor.reach import lost_timeout_s, seen_workers
from dispatcher.core.doctor.versions import GATES

POLICY = "clear-nominated-cluster-names"
OUR_DISPATCHER = "entrepot.dev/dispatcher"
MERGE_PATCH_GATE = "WorkloadRequestUseMergePatch"
_BUILT_IN = {
    "kueue.x-k8s.io/multikueue-dispatcher-all-at-once": "AllAtOnce: every cluster is nominated",
    "kueue.x-k8s.io/multikueue-dispatcher-incremental": "Incremental: three clusters every five minutes",
}
_SILENCE_LIMIT_S = 60
_ALWAYS_SERVED = ("", "batch", "apps")
_APPS = ("deployment", "statefulset")
_IGNORES_MANAGED_BY = {
    ("trainer.kubeflow.org", "trainjob"): "Kubeflow Trainer before the middle of 2026 reconciles every TrainJob",
}
"""Kinds with spec.managedBy whose controller does not read it, by API group and kind (FR-RAC-11). Kinds without the
field (pods, and what makes pods: Deployment, StatefulSet, LeaderWorkerSet) are held on the hub by scheduling gates."""


def check_config(facts: FleetFacts) -> Iterator[Finding]:
    hub = facts.hub
    if not hub.cluster.reachable:
        return
    yield from _policy(hub)
    config = hub.cluster.config
    if config is not None:
        where = Where(HUB, "ConfigMap", config.where)
        if config.problem:
            yield found(Code.CONFIG_UNREADABLE, where, config.problem)
        else:
            yield from _dispatcher(config, where)
            yield from _times(facts, config, where)
            yield from _frameworks(facts, config)
        yield from _gates(config, where)
    for cluster in (hub.cluster, *(worker.cluster for worker in facts.workers)):
        own = cluster.config
        if own is not None and own.accounting_changes:
            seen = ", ".join(own.accounting_changes)
            yield found(Code.ACCOUNTING_CHANGED, Where(cluster.name, "ConfigMap", own.where), f"it sets {seen}")


# --- the clearing policy -----------------------------------------------------------------------------------------

_POLICY_CODES = {
    PolicyFault.API_NOT_SERVED: Code.POLICY_MISSING,
    PolicyFault.MISSING: Code.POLICY_MISSING,
    PolicyFault.NOT_BOUND: Code.POLICY_NOT_BOUND,
    PolicyFault.BINDING_NARROWED: Code.POLICY_NOT_BOUND,
    PolicyFault.OLD_API_SERVED: Code.POLICY_OLD_API,
}
_POLICY_TEXTS = {
    PolicyFault.API_NOT_SERVED: "the kind MutatingAdmissionPolicy does not exist on this hub",
    PolicyFault.MISSING: "it does not exist",
    PolicyFault.RULES: "it does not match UPDATE of workloads/status in kueue.x-k8s.io/v1beta2",
    PolicyFault.MUTATION: "it does not empty status.nominatedClusterNames",
    PolicyFault.CONDITIONS: "its match conditions are not those that Kueue ships",
    PolicyFault.FAILURE_POLICY: "failurePolicy is not Fail: where it cannot be evaluated, a nomination stays",
    PolicyFault.PARAMETERS: "it asks for parameters: without their object it does nothing",
    PolicyFault.NOT_BOUND: "no MutatingAdmissionPolicyBinding names it",
    PolicyFault.BINDING_NARROWED: "every binding has matchResources or parameters: it is not in force everywhere",
    PolicyFault.OLD_API_SERVED: "somebody writes Workload status through kueue.x-k8s.io/v1beta1",
}
_BIND = (
    "kubectl apply -f - <<< '{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicyBinding, "
    f"metadata: {{name: {POLICY}-binding}}, spec: {{policyName: {POLICY}}}}}'"
)


def _policy(hub: HubFacts) -> Iterator[Finding]:
    if hub.policy_faults is None:
        return
    gate = hub.cluster.config.gate(MERGE_PATCH_GATE) if hub.cluster.config is not None else None
    serious = [fault for fault, _ in hub.policy_faults if fault is not PolicyFault.OLD_API_SERVED]
    if gate and serious:
        seen = f"{MERGE_PATCH_GATE}=true stands in for the policy: {_POLICY_TEXTS[serious[0]]}"
        yield found(Code.MERGE_PATCH_GATE, Where(HUB, "MutatingAdmissionPolicy", POLICY), seen)
        return
    for fault, detail in hub.policy_faults:
        code = _POLICY_CODES.get(fault, Code.POLICY_EDITED)
        seen = _POLICY_TEXTS[fault] + (f" ({detail})" if detail else "")
        fix = _BIND if fault is PolicyFault.NOT_BOUND else ""
        yield found(code, Where(HUB, "MutatingAdmissionPolicy", POLICY), seen, fix)


# --- the configuration -------------------------------------------------------------------------------------------


def _dispatcher(config: KueueConfig, where: Where) -> Iterator[Finding]:
    name = config.dispatcher
    if not name or name in _BUILT_IN:
        what = _BUILT_IN.get(name or "", "AllAtOnce, the default: every cluster is nominated")
        named = f"multiKueue.dispatcherName is {name}" if name else "multiKueue.dispatcherName is not set"
        yield found(Code.DISPATCHER_BUILT_IN, where, f"{named} ({what})")
    elif name != OUR_DISPATCHER:
        yield found(Code.DISPATCHER_OTHER, where, f"multiKueue.dispatcherName is {name}")


def _gates(config: KueueConfig, where: Where) -> Iterator[Finding]:
    for rule in GATES:
        if config.gate(rule.name) is rule.value:
            seen = f"{rule.name}={str(rule.value).lower()}: {rule.why}"
            yield replace(found(Code.GATE, where, seen), severity=rule.severity, why=rule.why)
    if config.external_frameworks and config.gate("MultiKueueAdaptersForCustomJobs") is False:
        seen = "externalFrameworks are set and MultiKueueAdaptersForCustomJobs=false: their jobs are rejected"
        yield replace(found(Code.GATE, where, seen), severity=Severity.ERROR)


def _times(facts: FleetFacts, config: KueueConfig, where: Where) -> Iterator[Finding]:
    if config.gc_interval_s == 0:
        yield found(Code.GC_OFF, where, "multiKueue.gcInterval is 0")
    policy = facts.blueprint.policy if facts.blueprint is not None else None
    silence_s = policy.limits.silence_limit_s if policy is not None else _SILENCE_LIMIT_S
    lost_s = lost_timeout_s(facts.hub)
    if lost_s < silence_s:
        seen = f"workerLostTimeout is {lost_s} s, limits.silence_limit {silence_s} s"
        yield found(Code.LOST_TIMEOUT_SHORT, where, seen)


def _frameworks(facts: FleetFacts, config: KueueConfig) -> Iterator[Finding]:
    kinds = framework_kinds(config)
    for framework, kind in kinds:
        if kind in _IGNORES_MANAGED_BY:
            seen = f"{framework} is enabled: {_IGNORES_MANAGED_BY[kind]}, whoever spec.managedBy names"
            yield found(Code.MANAGED_BY_IGNORED, Where(HUB, "framework", framework), seen)
    for name, worker in seen_workers(facts).items():
        served = worker.cluster.kinds
        if served is None:
            continue
        for framework, kind in kinds:
            if kind not in served and kind[0] not in _ALWAYS_SERVED:
                seen = f"{framework} is enabled on the hub, and {name} does not serve {kind[1]} of {kind[0]}"
                fix = f"install the CRDs of {kind[0]} on {name}, or remove {framework} from the hub's frameworks"
                yield found(Code.FRAMEWORK_NOT_ON_WORKER, Where(name, "framework", framework), seen, fix)


def framework_kinds(config: KueueConfig) -> tuple[tuple[str, tuple[str, str]], ...]:
    """(framework as written, (API group, kind in lower case)) of all that the hub enables; Kueue's default is Jobs."""
    found_kinds = []
    for framework in config.frameworks if config.frameworks is not None else ("batch/job",):
        group, slash, kind = framework.rpartition("/")
        if not slash:
            group = "apps" if framework in _APPS else ""
        found_kinds.append((framework, (group, kind.lower())))
    for framework in config.external_frameworks:
        kind, _, rest = framework.partition(".")
        found_kinds.append((framework, (rest.partition(".")[2], kind.lower())))
    return tuple(found_kinds)
