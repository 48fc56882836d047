"""Joins a hub Workload with what its owner says into the one value that `decide` knows of it."""

from __future__ import annotations

from dataclasses import replace

from dispatcher.core.claims import reads_of
from dispatcher.core.decision import Decision, Outcome
from dispatcher.core.declaration import PREFIX, InputProblem, parse_declaration, suggestion
from dispatcher.core.ids import ClusterName, QueueName
from dispatcher.core.policy import Policy
from dispatcher.core.snapshot import MULTIKUEUE_CONTROLLER, HubView
from dispatcher.core.workload import Declaration, HubWorkload, OwnerMeta, Request

_CLASS_KEY = f"{PREFIX}workload-class"
_CLUSTERS_KEY = f"{PREFIX}clusters"
_ROUND_TRIP_KEY = f"{PREFIX}max-round-trip"
_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


def build_request(
    workload: HubWorkload, owner: OwnerMeta | None, hub: HubView, policy: Policy, attempt: int = 1
) -> Request | tuple[InputProblem, ...]:
    """The request of a waiting workload, or everything that keeps it from being decided.

    `owner` is the job object's metadata; None for an owner that is not visible, whose keys are then unknown, and an
    unknown narrowing must hold the workload rather than be taken for none. The class comes from the key, else from the
    queue's plan, and is filled into the declaration. `listed_clusters` is what the MultiKueueConfig behind the
    workload's check lists, in its order (kueue-contract section 4).
    """
    problems = [*_object_problems(workload, owner)]
    keys, clashes = _merged_keys(workload, owner)
    declared, unreadable = parse_declaration(keys, policy)
    problems += clashes
    problems += unreadable
    queue = _hub_queue(workload, hub)
    if queue is None:
        problems.append(_no_queue(workload))
    listed = () if queue is None else _listed_clusters(workload, queue, hub)
    if queue is not None and not listed:
        problems.append(_no_clusters(queue))
    problems += _cluster_problems(declared, listed, policy)
    if queue is not None and not any(p.key == _CLASS_KEY for p in problems):
        declared, missing = _with_class(declared, queue, policy)
        problems += missing
        problems += _near_whom(declared, policy)
    if problems or queue is None:
        return tuple(problems)
    return Request(
        uid=workload.uid,
        namespace=workload.namespace,
        name=workload.name,
        job_kind=_job_kind(workload, owner),
        job_name=_job_name(workload, owner),
        local_queue=workload.local_queue,
        hub_queue=queue,
        priority=workload.priority,
        created_at=workload.created_at,
        waiting_since=workload.quota_reserved_at or workload.created_at,
        resource_version=workload.resource_version,
        pod_sets=workload.pod_sets,
        declared=replace(declared, data=reads_of(workload.claims, declared.data, policy)),
        listed_clusters=listed,
        already_nominated=workload.nominated,
        attempt=attempt,
        claims=workload.claims,
    )


def attempt_of(request: Request, previous: Decision | None, *, written: bool = True) -> int:
    """The number of the attempt that is decided on now: it grows when an earlier nomination ended without a cluster.
    `written`: whether that of the newest decision was made at all."""
    if previous is None:
        return 1
    made = written and previous.outcome is not Outcome.WAIT
    return previous.attempt + (1 if made and not request.already_nominated else 0)


def _job_kind(workload: HubWorkload, owner: OwnerMeta | None) -> str:
    return owner.kind if owner else (workload.owner.kind if workload.owner else "")


def _job_name(workload: HubWorkload, owner: OwnerMeta | None) -> str:
    return owner.name if owner else (workload.owner.name if workload.owner else "")


def _object_problems(workload: HubWorkload, owner: OwnerMeta | None) -> list[InputProblem]:
    problems: list[InputProblem] = []
    if workload.problem is not None:
        problems.append(InputProblem("spec.podSets", "", workload.problem, "correct the job's pod template"))
    if workload.owner is None and workload.owner_count == 0:
        rule = "the Workload has no owner, so MultiKueue has nothing to run"
        problems.append(InputProblem("metadata.ownerReferences", "", rule, "submit a Job, JobSet ... instead"))
    elif owner is None and workload.owner is not None:
        name = f"{workload.owner.kind} {workload.namespace}/{workload.owner.name}"
        rule = "its owner is not visible, so what it declares is unknown"
        fix = "wait until it is seen; if it stays so, see that the hub watches this kind"
        problems.append(InputProblem("metadata.ownerReferences", name, rule, fix))
    if not workload.pod_sets and workload.problem is None:
        problems.append(InputProblem("spec.podSets", "", "there are no pod sets", "correct the job's pod template"))
    return problems


def _merged_keys(
    workload: HubWorkload, owner: OwnerMeta | None
) -> tuple[tuple[tuple[str, str], ...], list[InputProblem]]:
    """The job object's keys, then those that only its pod templates have. The same key with two values is a problem."""
    merged: dict[str, str] = {}
    problems: list[InputProblem] = []
    own = owner.keys if owner else ()
    for key, value in (*own, *workload.template_keys):
        if key in merged and merged[key].strip() != value.strip():
            rule = f"the job and its pod templates disagree: {merged[key]!r} and {value!r}"
            problems.append(InputProblem(key, value, rule, f"keep {key} in one place, on the job object"))
        merged.setdefault(key, value)
    return tuple(sorted(merged.items())), problems


def _hub_queue(workload: HubWorkload, hub: HubView) -> QueueName | None:
    if workload.cluster_queue is not None:
        return workload.cluster_queue
    local = hub.local_queues.get((workload.namespace, workload.local_queue))
    return local.cluster_queue if local else None


def _listed_clusters(workload: HubWorkload, queue: QueueName, hub: HubView) -> tuple[ClusterName, ...]:
    hub_queue = hub.queues.get(queue)
    names = [state.name for state in workload.checks] or list(hub_queue.checks if hub_queue else ())
    for name in names:
        check = hub.checks.get(name)
        if check is not None and check.controller == MULTIKUEUE_CONTROLLER and check.config is not None:
            return tuple(hub.configs.get(check.config, ()))
    return ()


def _no_queue(workload: HubWorkload) -> InputProblem:
    rule = f"there is no LocalQueue of this name in namespace {workload.namespace}"
    return InputProblem(_QUEUE_LABEL, workload.local_queue, rule, "name a LocalQueue of the namespace")


def _no_clusters(queue: QueueName) -> InputProblem:
    rule = "no MultiKueue check with a config that lists clusters stands behind this ClusterQueue"
    fix = "give the ClusterQueue an AdmissionCheck of kueue.x-k8s.io/multikueue whose MultiKueueConfig lists clusters"
    return InputProblem("clusterQueue", str(queue), rule, fix)


def _cluster_problems(declared: Declaration, listed: tuple[ClusterName, ...], policy: Policy) -> list[InputProblem]:
    """A name that nobody knows is a slip of the pen; a known one that is not listed is a rejection, with its reason."""
    known = tuple(sorted({*listed, *policy.clusters}))
    return [
        InputProblem(_CLUSTERS_KEY, str(name), f"cluster {name!r} is in no MultiKueueConfig", suggestion(name, known))
        for name in declared.clusters or ()
        if name not in known
    ]


def _near_whom(declared: Declaration, policy: Policy) -> list[InputProblem]:
    """A bound that binds nobody would be a promise that nobody keeps."""
    plan = policy.classes.get(declared.workload_class) if declared.workload_class is not None else None
    if declared.max_round_trip_ms is None or declared.users is not None or (plan is not None and plan.users):
        return []
    rule = "a longest round trip needs users, and neither the job nor its class names any"
    return [InputProblem(_ROUND_TRIP_KEY, f"{declared.max_round_trip_ms}ms", rule, f"add {PREFIX}users")]


def _with_class(declared: Declaration, queue: QueueName, policy: Policy) -> tuple[Declaration, list[InputProblem]]:
    if declared.workload_class is None:
        plan = policy.queues.get(queue)
        if plan is None:
            rule = f"queue {queue!r} is not in the plan (queues.yaml), so there is no default class"
            return declared, [InputProblem(_CLASS_KEY, "", rule, f"set {_CLASS_KEY} or add the queue to the plan")]
        declared = replace(declared, workload_class=plan.default_class)
    if declared.workload_class not in policy.classes:
        value = str(declared.workload_class)
        known = tuple(c.value for c in policy.classes)
        return declared, [InputProblem(_CLASS_KEY, value, "the plan has no such class", suggestion(value, known))]
    return declared, []
