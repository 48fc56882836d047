"""The hub's part of the survey: the clearing policy, MultiKueue's objects, jobs, Workloads, pods, kubeconfigs."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from connectors.kubernetes.client import ApiClient
from connectors.kubernetes.faults import NotFound
from connectors.kubernetes.fields import Raw, child, children, condition, text
from connectors.kubernetes.survey.clearing import binding_faults, policy_faults, writes_old_api
from connectors.kubernetes.survey.cluster import Wanted, active_of, listing, read_cluster
from connectors.kubernetes.survey.kubeconfigs import Inspection, inspect
from connectors.kubernetes.survey.permissions import daemon_on_hub, secrets_of
from connectors.kubernetes.survey.reading import CALL_S, Listing, Reader
from dispatcher.core.doctor.check_config import POLICY
from dispatcher.core.doctor.facts import (
    HUB,
    WRITE_WORKLOADS,
    AdmissionCheckFacts,
    CheckOn,
    DataKeyFacts,
    Holder,
    HubFacts,
    HubWorkloadFacts,
    JobFacts,
    KubeconfigFacts,
    KubeconfigFault,
    MultiKueueClusterFacts,
    PolicyFault,
    Source,
    Verb,
)
from dispatcher.core.errors import EntrepotError
from dispatcher.core.policy import Credentials
from dispatcher.core.ports import Clock

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_ADMISSION = "/apis/admissionregistration.k8s.io"
_ENDED = ("Complete", "Completed", "Failed")
_POD_JOB_LABELS = {"batch.kubernetes.io/job-name": "Job", "jobset.sigs.k8s.io/jobset-name": "JobSet"}
_WORKLOAD_ANNOTATION = "kueue.x-k8s.io/workload"


@dataclass(frozen=True, slots=True)
class HubSurvey:
    """The hub's facts, and MultiKueue's kubeconfigs by cluster for the look at what its accounts may do."""

    facts: HubFacts
    kubeconfigs: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class HubPlan:
    """What the blueprint names on the hub: Secrets of kubeconfigs, by cluster, and those of data, by whose they are."""

    credentials: Mapping[str, Credentials]
    data_keys: Mapping[str, Credentials]
    kueue_namespace: str


async def read_hub(client: ApiClient, plan: HubPlan, clock: Clock) -> HubSurvey:
    """Survey the hub. Raises EntrepotError when it cannot be reached.

    Of the blueprint's credentials only those of clusters that the hub knows are looked at: a plan is not wrong.
    """
    reader, credentials, kueue_namespace = Reader(client), plan.credentials, plan.kueue_namespace
    found_clusters = await reader.list(replace(listing("multikueueclusters"), absent_is_empty=True), _cluster)
    named = {each.name: each for each in found_clusters or ()}
    if found_clusters is not None:
        credentials = {name: each for name, each in credentials.items() if name in named}
    optional = (WRITE_WORKLOADS, *secrets_of(plan.data_keys.values()))
    wanted = Wanted(kueue_namespace, daemon_on_hub(credentials.values()), optional=optional)
    cluster = await read_cluster(HUB, reader, wanted, clock)
    if not cluster.kueue_served:
        return HubSurvey(HubFacts(replace(cluster, unread=tuple(reader.unread))), {})
    async with asyncio.TaskGroup() as group:
        faults = group.create_task(_policy(reader))
        checks = group.create_task(reader.list(listing("admissionchecks"), _check))
        configs = group.create_task(reader.list(listing("multikueueconfigs"), _config))
        jobs = group.create_task(_jobs(reader))
        workloads = group.create_task(reader.list(listing("workloads"), _workload))
        pods = group.create_task(_bound_pods(reader))
    inspected, contents = await _kubeconfigs(reader, named, credentials, kueue_namespace)
    data_keys = await _data_keys(reader, plan.data_keys)
    seen = workloads.result()
    old_api = any(old for _, old in seen or ())
    facts = HubFacts(
        cluster=replace(cluster, unread=tuple(reader.unread)),
        policy_faults=_with_old_api(faults.result(), old_api),
        checks=_named(checks.result()),
        configs=None if configs.result() is None else dict(configs.result() or ()),
        clusters=None if found_clusters is None else named,
        kubeconfigs=inspected,
        data_keys=data_keys,
        jobs=jobs.result(),
        workloads=None if seen is None else tuple(workload for workload, _ in seen),
        bound_pods=pods.result(),
    )
    return HubSurvey(facts, contents)


def _named(checks: tuple[AdmissionCheckFacts, ...] | None) -> Mapping[str, AdmissionCheckFacts] | None:
    return None if checks is None else {check.name: check for check in checks}


# --- the clearing policy -----------------------------------------------------------------------------------------

PolicyFaults = tuple[tuple[PolicyFault, str], ...]


async def _policy(reader: Reader) -> PolicyFaults | None:
    """None when it cannot be said: the account may not look."""
    served = False
    for version in ("v1", "v1beta1"):
        base = f"{_ADMISSION}/{version}"
        kinds = await reader.get(base, base, quiet=True)
        names = {text(resource, "name") for resource in children(kinds or {}, "resources")}
        if "mutatingadmissionpolicies" not in names:
            continue
        served = True
        try:
            policy = await reader.client.get(f"{base}/mutatingadmissionpolicies/{POLICY}", deadline_s=CALL_S)
        except NotFound:
            continue
        except EntrepotError as error:
            reader.missed(f"get mutatingadmissionpolicies.admissionregistration.k8s.io {POLICY}", error)
            return None
        verb = Verb("list", "admissionregistration.k8s.io", "mutatingadmissionpolicybindings")
        bindings = await reader.list(Listing(verb, f"{base}/mutatingadmissionpolicybindings"), lambda raw: raw)
        bound = [] if bindings is None else binding_faults(bindings, POLICY)
        return (*policy_faults(policy), *bound)
    return ((PolicyFault.MISSING if served else PolicyFault.API_NOT_SERVED, ""),)


def _with_old_api(faults: PolicyFaults | None, old_api: bool) -> PolicyFaults | None:
    if faults is None or not old_api:
        return faults
    return (*faults, (PolicyFault.OLD_API_SERVED, ""))


# --- MultiKueue --------------------------------------------------------------------------------------------------


def _check(raw: Raw) -> AdmissionCheckFacts:
    spec = child(raw, "spec")
    controller = text(spec, "controllerName")
    config = text(child(spec, "parameters"), "name") if controller == CheckOn.MULTIKUEUE else ""
    return AdmissionCheckFacts(text(child(raw, "metadata"), "name"), controller, active_of(raw), config or None)


def _config(raw: Raw) -> tuple[str, tuple[str, ...]]:
    clusters = child(raw, "spec").get("clusters")
    names = tuple(str(name) for name in clusters) if isinstance(clusters, list) else ()
    return text(child(raw, "metadata"), "name"), names


def _cluster(raw: Raw) -> MultiKueueClusterFacts:
    meta, source = child(raw, "metadata"), child(raw, "spec", "clusterSource")
    kubeconfig = child(source, "kubeConfig")
    kind, location = Source.NONE, ""
    if kubeconfig:
        kind = Source.PATH if text(kubeconfig, "locationType") == "Path" else Source.SECRET
        location = text(kubeconfig, "location")
    elif child(source, "clusterProfileRef"):
        kind, location = Source.PROFILE, text(child(source, "clusterProfileRef"), "name")
    return MultiKueueClusterFacts(text(meta, "name"), active_of(raw), kind, location, "deletionTimestamp" in meta)


# --- jobs --------------------------------------------------------------------------------------------------------


async def _jobs(reader: Reader) -> tuple[JobFacts, ...] | None:
    """Jobs and JobSets with a queue label, or None when either cannot be listed."""
    jobs = await reader.list(
        replace(listing("jobs", "batch", "v1"), label_selector=QUEUE_LABEL), lambda raw: _job(raw, "Job")
    )
    sets = await reader.list(
        replace(listing("jobsets", "jobset.x-k8s.io", "v1alpha2"), label_selector=QUEUE_LABEL, absent_is_empty=True),
        lambda raw: _job(raw, "JobSet"),
    )
    return None if jobs is None or sets is None else (*jobs, *sets)


def _job(raw: Raw, kind: str) -> JobFacts:
    meta, spec = child(raw, "metadata"), child(raw, "spec")
    ttl = spec.get("ttlSecondsAfterFinished")
    return JobFacts(
        kind=kind,
        namespace=text(meta, "namespace"),
        name=text(meta, "name"),
        queue=text(child(meta, "labels"), QUEUE_LABEL),
        managed_by=text(spec, "managedBy"),
        ttl_s=ttl if isinstance(ttl, int) else None,
        finished=any(condition(raw, ended).holds for ended in _ENDED),
    )


def _workload(raw: Raw) -> tuple[HubWorkloadFacts, bool]:
    """The Workload, and whether its status was written through the old API."""
    meta = child(raw, "metadata")
    owner: Raw = next(iter(children(meta, "ownerReferences")), {})
    found = HubWorkloadFacts(
        namespace=text(meta, "namespace"),
        name=text(meta, "name"),
        owner_kind=text(owner, "kind"),
        owner_name=text(owner, "name"),
        cluster=text(child(raw, "status"), "clusterName") or None,
    )
    return found, writes_old_api(raw)


async def _bound_pods(reader: Reader) -> tuple[tuple[str, str, tuple[str, ...]], ...] | None:
    """Pods that sit on nodes of the hub and belong to some job. Metadata is enough: the selector says the rest."""
    pods = replace(
        listing("pods", "", "v1"),
        metadata_only=True,
        field_selector="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed",
    )
    found = await reader.list(pods, _pod)
    return None if found is None else tuple(pod for pod in found if pod[2])


def _pod(raw: Raw) -> tuple[str, str, tuple[str, ...]]:
    meta = child(raw, "metadata")
    labels, annotations = child(meta, "labels"), child(meta, "annotations")
    owners = {f"{kind}/{text(labels, label)}" for label, kind in _POD_JOB_LABELS.items() if text(labels, label)}
    owners |= {f"{text(owner, 'kind')}/{text(owner, 'name')}" for owner in children(meta, "ownerReferences")}
    if text(annotations, _WORKLOAD_ANNOTATION):
        owners.add(f"Workload/{text(annotations, _WORKLOAD_ANNOTATION)}")
    return text(meta, "namespace"), text(meta, "name"), tuple(sorted(owners))


# --- kubeconfigs -------------------------------------------------------------------------------------------------


async def _kubeconfigs(
    reader: Reader,
    clusters: Mapping[str, MultiKueueClusterFacts],
    credentials: Mapping[str, Credentials],
    kueue_namespace: str,
) -> tuple[tuple[KubeconfigFacts, ...], Mapping[str, bytes]]:
    """MultiKueue's kubeconfigs and our own. Where both are one Secret, it is MultiKueue's."""
    found: list[KubeconfigFacts] = []
    contents: dict[str, bytes] = {}
    seen: set[tuple[str, str]] = set()
    for name, cluster in sorted(clusters.items()):
        if cluster.source is Source.SECRET:
            where = f"{kueue_namespace}/{cluster.location}"
            seen.add((where, "kubeconfig"))
            facts, content = await _in_secret(reader, KubeconfigFacts(name, Holder.MULTIKUEUE, where))
            found += [facts] if facts is not None else []
            if content:
                contents[name] = content
    for name, ours in sorted(credentials.items()):
        if ours.file is not None:
            found.append(_with(KubeconfigFacts(name, Holder.ENTREPOT, ours.file, ""), await _of_file(Path(ours.file))))
        elif (f"{ours.secret_namespace}/{ours.secret_name}", ours.secret_key) not in seen:
            where = f"{ours.secret_namespace}/{ours.secret_name}"
            facts, _ = await _in_secret(reader, KubeconfigFacts(name, Holder.ENTREPOT, where, ours.secret_key))
            found += [facts] if facts is not None else []
    return tuple(found), contents


async def _in_secret(reader: Reader, about: KubeconfigFacts) -> tuple[KubeconfigFacts | None, bytes]:
    """None when the account may not read the Secret; its content for those who go on from there."""
    namespace, _, name = about.where.partition("/")
    try:
        secret = await reader.client.get(f"/api/v1/namespaces/{namespace}/secrets/{name}", deadline_s=CALL_S)
    except NotFound:
        return replace(about, faults=((KubeconfigFault.NO_SECRET, f"Secret {about.where} does not exist"),)), b""
    except EntrepotError as error:
        reader.missed(Verb("get", "", "secrets", namespace, name).text(), error)
        return None, b""
    content = _value(secret, about.key)
    if not content:
        return replace(about, faults=((KubeconfigFault.NO_KEY, _lacks(secret, about.where, about.key)),)), b""
    return _with(about, inspect(content)), content


def _value(secret: Raw, key: str) -> bytes:
    """Empty also where it is no base64."""
    try:
        return base64.b64decode(text(child(secret, "data"), key), validate=True)
    except binascii.Error:
        return b""


def _lacks(secret: Raw, where: str, key: str) -> str:
    keys = ", ".join(sorted(child(secret, "data"))) or "none"
    return f"Secret {where} has no key {key!r}; it has {keys}"


def _with(about: KubeconfigFacts, inspection: Inspection) -> KubeconfigFacts:
    return replace(
        about,
        faults=inspection.faults,
        token_ends=inspection.token_ends,
        certificate_ends=inspection.certificate_ends,
        ca_ends=inspection.ca_ends,
    )


async def _of_file(path: Path) -> Inspection:
    try:
        content = await asyncio.to_thread(path.read_bytes)
    except OSError as error:
        return Inspection(((KubeconfigFault.MALFORMED, f"it cannot be read: {error.strerror}"),))
    return inspect(content, from_secret=False)


# --- keys of data ------------------------------------------------------------------------------------------------


async def _data_keys(reader: Reader, keys: Mapping[str, Credentials]) -> tuple[DataKeyFacts, ...]:
    """The Secrets of catalog and stores. Files are the pod's: of those only the daemon knows."""
    found = []
    for of, key in sorted(keys.items()):
        if key.secret_name is None:
            continue
        about = DataKeyFacts(of, f"{key.secret_namespace}/{key.secret_name}", key.secret_key)
        path = f"/api/v1/namespaces/{key.secret_namespace}/secrets/{key.secret_name}"
        try:
            secret = await reader.client.get(path, deadline_s=CALL_S)
        except NotFound:
            found.append(replace(about, fault=f"Secret {about.where} does not exist"))
        except EntrepotError as error:
            reader.missed(Verb("get", "", "secrets", key.secret_namespace or "", key.secret_name).text(), error)
        else:
            there = bool(_value(secret, about.key))
            found.append(about if there else replace(about, fault=_lacks(secret, about.where, about.key)))
    return tuple(found)
