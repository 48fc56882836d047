"""User manifests (batch/v1 Job, jobset.x-k8s.io/v1alpha2 JobSet) read into what the embedded world runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha1
from typing import Any

from connectors.embedded.manifests import PRIORITY_LABEL, QUEUE_LABEL, Manifest, ManifestError
from connectors.kubernetes.decode import hub_workload, owner_record
from connectors.kubernetes.fields import Raw, child, integer, text
from dispatcher.core.workload import HubWorkload, OwnerMeta

DURATION_ANNOTATION = "entrepot.dev/simulated-duration"
OUTCOME_ANNOTATION = "entrepot.dev/simulated-outcome"
DEFAULT_DURATION_S = 2.0
_PREFIX = "kueue.x-k8s.io/podset-"
_TOPOLOGY = ("required", "preferred", "unconstrained")
"""Which of the annotations `podset-...-topology` counts, where a template has several."""
DEFAULT_BACKOFF_LIMIT = 6
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s|us|ns)")
_UNIT_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


@dataclass(frozen=True, slots=True)
class PodGroup:
    """The pods of one pod set: `jobs` batch Jobs of `parallelism` pods each, until `completions` of each have ended.

    `fails` = they end in failure. The pods themselves are described by the pod set of the same position.
    """

    jobs: int
    parallelism: int
    completions: int
    backoff_limit: int
    runs_s: float
    fails: bool


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A Job or JobSet as its owner wrote it; `manifest` is the whole of it."""

    api_version: str
    kind: str
    namespace: str
    name: str
    labels: Mapping[str, str]
    groups: tuple[PodGroup, ...]
    pod_sets: tuple[Raw, ...]
    ttl_s: int | None
    manifest: Manifest

    @property
    def queue(self) -> str:
        return self.labels.get(QUEUE_LABEL, "")

    @property
    def priority_class(self) -> str | None:
        return self.labels.get(PRIORITY_LABEL)

    def owner_meta(self, uid: str) -> OwnerMeta:
        """What the hub's view keeps of the job object."""
        meta = {**child(self.manifest, "metadata"), "uid": uid, "namespace": self.namespace}
        return owner_record({**self.manifest, "metadata": meta}, self.kind).meta

    def workload_name(self, uid: str) -> str:
        """The name that Kueue gives the Workload of this job: job-NAME-HASH."""
        group = self.api_version.partition("/")[0]
        digest = sha1("\n".join((self.kind, group, self.name, uid)).encode(), usedforsecurity=False).hexdigest()[:5]
        return f"{self.kind.lower()}-{self.name}"[:57] + f"-{digest}"

    def workload(self, uid: str, owner_uid: str, priority: int, created_at: datetime) -> HubWorkload:
        """The Workload that Kueue makes of this job, decoded as the real connector would."""
        owner = {"apiVersion": self.api_version, "kind": self.kind, "name": self.name, "uid": owner_uid}
        return hub_workload(
            {
                "metadata": {
                    "uid": uid,
                    "namespace": self.namespace,
                    "name": self.workload_name(owner_uid),
                    "creationTimestamp": created_at.isoformat(),
                    "ownerReferences": [{**owner, "controller": True}],
                },
                "spec": {"queueName": self.queue, "priority": priority, "podSets": list(self.pod_sets)},
            }
        )


def job_of(manifest: Manifest) -> JobSpec:
    """Read a user's manifest.

    Raises:
        ManifestError: the kind is not one that the embedded world runs, or a required field is missing.
    """
    kind, meta, spec = text(manifest, "kind"), child(manifest, "metadata"), child(manifest, "spec")
    try:
        if kind == "Job":
            parts = [("main", 1, spec)]
        elif kind == "JobSet":
            replicated = spec["replicatedJobs"]
            parts = [(str(r["name"]), integer(r, "replicas", 1), r["template"]["spec"]) for r in replicated]
        else:
            raise ManifestError(f"{kind}: the embedded fleet runs Job and JobSet only")
        groups = tuple(_group(jobs, part) for _, jobs, part in parts)
        return JobSpec(
            api_version=str(manifest["apiVersion"]),
            kind=kind,
            namespace=text(meta, "namespace") or "default",
            name=str(meta["name"]),
            labels=dict(child(meta, "labels")),
            groups=groups,
            pod_sets=tuple(
                _pod_set(name, group, part["template"], group.parallelism if kind == "JobSet" else None)
                for (name, _, part), group in zip(parts, groups, strict=True)
            ),
            ttl_s=spec.get("ttlSecondsAfterFinished"),
            manifest=manifest,
        )
    except KeyError as error:
        raise ManifestError(f"{kind} {text(meta, 'name')}: {error} is required") from error


def _pod_set(name: str, group: PodGroup, template: Raw, usual_slice: int | None) -> Raw:
    """A pod set as Kueue writes it, with what its template's annotations ask of topology-aware scheduling.

    `usual_slice` is the size of a slice where nothing says one.
    """
    asked = child(template, "metadata", "annotations")
    chosen = next((key for key in _TOPOLOGY if f"{_PREFIX}{key}-topology" in asked), None)
    wish: dict[str, Any] = {chosen: text(asked, f"{_PREFIX}{chosen}-topology")} if chosen is not None else {}
    size = text(asked, f"{_PREFIX}slice-size") or usual_slice
    if f"{_PREFIX}slice-required-topology" in asked and size:
        wish["podSetSliceRequiredTopology"] = text(asked, f"{_PREFIX}slice-required-topology")
        wish["podSetSliceSize"] = int(size)
    if f"{_PREFIX}group-name" in asked:
        wish["podSetGroupName"] = text(asked, f"{_PREFIX}group-name")
    found: dict[str, Any] = {"name": name, "count": group.jobs * group.parallelism, "template": template}
    return {**found, "topologyRequest": wish} if wish else found


def _group(jobs: int, spec: Mapping[str, Any]) -> PodGroup:
    parallelism = integer(spec, "parallelism", 1)
    completions = integer(spec, "completions", parallelism)
    annotations = child(spec, "template", "metadata", "annotations")
    return PodGroup(
        jobs=jobs,
        parallelism=min(parallelism, completions),
        completions=completions,
        backoff_limit=integer(spec, "backoffLimit", DEFAULT_BACKOFF_LIMIT),
        runs_s=duration_s(text(annotations, DURATION_ANNOTATION)),
        fails=text(annotations, OUTCOME_ANNOTATION) == "failed",
    )


def duration_s(written: str) -> float:
    """A Go duration ("3s", "1m30s", "500ms"), as KWOK reads the same annotation; what does not parse is the default."""
    parts = _DURATION_PART.findall(written)
    if not parts or "".join(number + unit for number, unit in parts) != written:
        return DEFAULT_DURATION_S
    return sum(float(number) * _UNIT_S[unit] for number, unit in parts)
