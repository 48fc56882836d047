"""What the watchdog concludes from views: one row a rule, then the stories of several looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from dispatcher.core.explain_findings import finding_text
from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.snapshot import HubView, WorkerCopy, WorkerView
from dispatcher.core.watchdog import Finding, FindingCode, Memory, Views, look
from dispatcher.core.workload import CheckState, HubWorkload, OwnerMeta
from tests.unit.test_waiting import OWNER, T0, hub, workload

A, B, GONE = ClusterName("a"), ClusterName("b"), ClusterName("gone")
KEY = ("autonomy", "job-train-a")
SILENCE_S = 60
READY = CheckState("fleet", "Ready", changed_at=T0)
NOMINATED = workload(nominated=(A,))
PLACED = workload(cluster_name=A, checks=(READY,), admitted_at=T0)
EVICTING = workload(evicted_at=T0)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def copy(**changes: object) -> WorkerCopy:
    """A copy of ours that was admitted at T0 and runs on one pod."""
    base = WorkerCopy(
        "c1",
        *KEY,
        ours=True,
        quota_reserved_at=T0,
        admitted_at=T0,
        bound_pods=1,
        job_kind="Job",
        job_name="train-a",
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def worker(name: ClusterName, *copies: WorkerCopy, now: datetime = T0, **changes: object) -> WorkerView:
    view = WorkerView(name, True, now, copies={(c.namespace, c.name): c for c in copies})
    return replace(view, **changes)  # type: ignore[arg-type]


class Story:
    """Looks in a row. `see` takes the hub's Workload and the copy on each cluster (None: there is none)."""

    def __init__(self) -> None:
        self.memory: Memory = {}

    def see(
        self, now: datetime, subject: HubWorkload | HubView, copies: Mapping[ClusterName, object] | None = None
    ) -> dict[FindingCode, Finding]:
        view = subject if isinstance(subject, HubView) else hub(subject)
        workers = {A: worker(A, now=now), B: worker(B, now=now)}
        for name, found in (copies or {}).items():
            workers[name] = found if isinstance(found, WorkerView) else worker(name, found, now=now)  # type: ignore[arg-type]
        looked = look(self.memory, Views(view, workers, SILENCE_S, now))
        self.memory = looked.memory
        return {finding.code: finding for finding in looked.findings}


def one_look(
    subject: HubWorkload | HubView, copies: Mapping[ClusterName, object], now: datetime = T0
) -> dict[FindingCode, Finding]:
    return Story().see(now, subject, copies)


FOREIGN = WorkerCopy("l1", "autonomy", "job-train-a-local", ours=False, job_kind="Job", job_name="train-a")
IN_ONE_LOOK: dict[str, tuple[HubWorkload, Mapping[ClusterName, object], float, FindingCode | None]] = {
    "a running copy that the hub has latched is well": (PLACED, {A: copy()}, 30, None),
    "a nominated copy that waits for quota is well": (
        NOMINATED,
        {A: copy(admitted_at=None, quota_reserved_at=None, bound_pods=0)},
        3600,
        None,
    ),
    "admitted and not latched for a few seconds is normal": (NOMINATED, {A: copy()}, 5, None),
    "admitted and not latched for over a minute is an alarm": (NOMINATED, {A: copy()}, 61, FindingCode.NOT_LATCHED),
    "an eviction on the worker while it runs": (
        PLACED,
        {A: copy(evicted_at=at(1), evicted_reason="ClusterQueueStopped")},
        1,
        FindingCode.COPY_EVICTED,
    ),
    "a preemption on the worker for a higher priority": (
        PLACED,
        {A: copy(evicted_at=at(1), evicted_reason="Preempted", preempted_by="InClusterQueue")},
        1,
        FindingCode.COPY_EVICTED,
    ),
    "borrowed quota that its owner takes back on the worker": (
        PLACED,
        {A: copy(evicted_at=at(1), evicted_reason="Preempted", preempted_by="InCohortReclamation")},
        1,
        FindingCode.COPY_RECLAIMED,
    ),
    "the same where the owner borrows himself": (
        PLACED,
        {A: copy(evicted_at=at(1), evicted_reason="Preempted", preempted_by="InCohortReclaimWhileBorrowing")},
        1,
        FindingCode.COPY_RECLAIMED,
    ),
    "a preemption by the hub itself": (
        workload(evicted_at=T0, nominated=(), preempted_by="InCohortReclamation"),
        {},
        1,
        FindingCode.HUB_PREEMPTED,
    ),
    "an eviction on the worker that the hub has answered already": (
        workload(evicted_at=T0, nominated=()),
        {},
        1,
        None,
    ),
    "an eviction that asks for a check again is a provisioning failure": (
        NOMINATED,
        {A: copy(evicted_at=at(1), evicted_reason="AdmissionCheck", bound_pods=0)},
        1,
        FindingCode.PROVISIONING_FAILED,
    ),
    "a check of the worker that asks for Retry is a provisioning failure": (
        NOMINATED,
        {A: copy(admitted_at=None, checks=(CheckState("prov", "Retry"),))},
        1,
        FindingCode.PROVISIONING_FAILED,
    ),
    "a check of the worker that is Rejected": (
        NOMINATED,
        {A: copy(admitted_at=None, checks=(CheckState("prov", "Rejected"),))},
        1,
        FindingCode.COPY_REJECTED,
    ),
    "a rejection that shows only as the reason of the eviction": (
        NOMINATED,
        {A: copy(active=False, evicted_at=at(1), evicted_reason="DeactivatedDueToAdmissionCheck")},
        1,
        FindingCode.COPY_REJECTED,
    ),
    "a copy that somebody deactivated": (
        PLACED,
        {A: copy(active=False, evicted_at=at(1), evicted_reason="Deactivated")},
        1,
        FindingCode.COPY_DEACTIVATED,
    ),
    "a deactivation that a hub's eviction caused is none of the worker's doing": (
        PLACED,
        {A: copy(active=False, evicted_at=at(1), evicted_reason="DeactivatedDueToEvictedOnManagerCluster")},
        1,
        None,
    ),
    "a copy that finished out of sync (FR-RAC-06)": (
        NOMINATED,
        {A: copy(finished=True, finished_reason="OutOfSync", bound_pods=0)},
        1,
        FindingCode.COPY_OUT_OF_SYNC,
    ),
    "a copy that finished with success is well": (
        PLACED,
        {A: copy(finished=True, finished_reason="Succeeded", bound_pods=0)},
        1,
        None,
    ),
    "a nomination that an eviction left behind": (
        workload(evicted_at=T0, nominated=(A,)),
        {},
        1,
        FindingCode.LEFT_BEHIND,
    ),
    "an eviction that ends in time is well": (EVICTING, {}, 29, None),
    "an eviction that waits for pods of a copy that is nowhere": (EVICTING, {}, 31, FindingCode.EVICTION_STUCK),
    "an eviction that waits for a copy which is still there is well": (
        EVICTING,
        {A: copy(evicted_at=T0, evicted_reason="Preempted", active=False)},
        600,
        None,
    ),
    "an eviction whose worker cannot be seen is not judged": (
        EVICTING,
        {A: worker(A, now=T0 - timedelta(seconds=61))},
        31,
        None,
    ),
    "pods on two clusters (FR-RAC-10)": (
        PLACED,
        {A: copy(), B: copy(uid="c2", admitted_at=at(5))},
        6,
        FindingCode.TWO_COPIES_RUNNING,
    ),
    "copies on two clusters of which one runs are well": (
        NOMINATED,
        {A: copy(), B: copy(uid="c2", bound_pods=0, admitted_at=None)},
        1,
        None,
    ),
    "a local job of the same name in the way (FR-RAC-07)": (
        NOMINATED,
        {A: worker(A, copy(bound_pods=0, job_name=""), FOREIGN)},
        1,
        FindingCode.NAME_TAKEN,
    ),
    "a local job of another kind with that name is not in the way": (
        NOMINATED,
        {A: worker(A, copy(bound_pods=0, job_name=""), replace(FOREIGN, job_kind="JobSet"))},
        1,
        None,
    ),
    "a finished local job of that name is not in the way": (
        NOMINATED,
        {A: worker(A, copy(bound_pods=0, job_name=""), replace(FOREIGN, finished=True))},
        1,
        None,
    ),
    "booked as finished though it never ran (FR-RAC-06)": (
        workload(finished=True, finished_reason="OutOfSync", cluster_name=A),
        {},
        1,
        FindingCode.COPY_OUT_OF_SYNC,
    ),
    "nominated to a cluster that the hub no longer has (FR-WAT-03)": (
        workload(nominated=(A, GONE)),
        {},
        0,
        FindingCode.CLUSTER_GONE,
    ),
    "placed on a cluster that the hub no longer has": (
        workload(cluster_name=GONE, checks=(READY,), admitted_at=T0),
        {},
        0,
        FindingCode.CLUSTER_GONE,
    ),
    "a copy with quota on a cluster that left the hub may still win": (
        workload(nominated=(GONE,)),
        {GONE: copy(admitted_at=None, bound_pods=0)},
        0,
        None,
    ),
    "finished with success": (workload(finished=True, finished_reason="Succeeded", cluster_name=A), {}, 1, None),
}


@pytest.mark.parametrize(("subject", "copies", "seconds", "expected"), IN_ONE_LOOK.values(), ids=IN_ONE_LOOK.keys())
def test_in_one_look(
    subject: HubWorkload, copies: Mapping[ClusterName, object], seconds: float, expected: FindingCode | None
) -> None:
    fresh = {n: replace(v, observed_at=at(seconds)) if _fresh(v) else v for n, v in copies.items()}
    found = one_look(subject, fresh, at(seconds))
    assert list(found) == ([] if expected is None else [expected])


def _fresh(view: object) -> bool:
    """Worker views of the table that are meant to be current at the moment of the look."""
    return isinstance(view, WorkerView) and view.observed_at == T0


def test_of_a_worker_that_is_not_connected_nothing_is_concluded() -> None:
    evicted = copy(evicted_at=T0, evicted_reason="Preempted")
    old = worker(A, evicted, now=T0 - timedelta(seconds=SILENCE_S + 1))
    unsynced = worker(A, evicted, synced=False)
    assert one_look(PLACED, {A: old}) == {}
    assert one_look(PLACED, {A: unsynced}) == {}


def test_a_latch_that_later_ones_have_overtaken_alarms_early() -> None:
    """MultiKueue serves others that were admitted later: this one is not waiting its turn."""
    other = workload(uid=WorkloadUid("w2"), name="job-b", cluster_name=B, checks=(READY,), admitted_at=at(13))
    view = hub(NOMINATED, other)
    latched = WorkerCopy("c9", "autonomy", "job-b", ours=True, admitted_at=at(12), bound_pods=1)
    found = one_look(view, {A: copy(), B: latched}, at(14))
    assert found[FindingCode.NOT_LATCHED].cluster == A
    level = replace(latched, admitted_at=at(8))
    assert one_look(view, {A: copy(), B: level}, at(14)) == {}


def test_fr_rac_11_children_of_a_dispatched_job_on_the_hub_are_an_alarm() -> None:
    train = replace(PLACED, owner=replace(OWNER, kind="TrainJob", api_version="trainer.kubeflow.org/v1alpha1"))
    child = OwnerMeta("set-1", "JobSet", "autonomy", "train-a", controller_uid=OWNER.uid)
    other = OwnerMeta("set-2", "JobSet", "autonomy", "train-b", controller_uid="job-2")
    alarmed = one_look(replace(hub(train), owners={"set-1": child, "set-2": other}), {A: copy()})
    assert alarmed[FindingCode.HUB_RUNS_IT].detail.names == ("JobSet train-a",)
    assert one_look(replace(hub(train), owners={"set-2": other}), {A: copy()}) == {}


def test_an_answer_that_showed_for_a_moment_is_remembered_while_the_copy_is_made_anew() -> None:
    """A rejected copy is deleted and made again within a second (v0.19.2): the next one is as yet without a fault."""
    story = Story()
    rejected = copy(admitted_at=None, active=False, evicted_at=at(1), evicted_reason="DeactivatedDueToAdmissionCheck")
    assert list(story.see(at(1), NOMINATED, {A: rejected})) == [FindingCode.COPY_REJECTED]
    again = copy(uid="c2", admitted_at=None, quota_reserved_at=at(2), bound_pods=0)
    assert list(story.see(at(2), NOMINATED, {A: again})) == [FindingCode.COPY_REJECTED]
    admitted = copy(uid="c2", admitted_at=at(3), bound_pods=0)
    assert story.see(at(4), NOMINATED, {A: admitted}) == {}


def test_the_same_fault_has_one_identity_and_a_new_copys_has_another() -> None:
    story = Story()
    first = story.see(at(1), NOMINATED, {A: copy(checks=(CheckState("prov", "Retry"),))})
    second = story.see(at(2), NOMINATED, {A: copy(checks=(CheckState("prov", "Retry"),))})
    third = story.see(at(3), NOMINATED, {A: copy(uid="c2", checks=(CheckState("prov", "Retry"),))})
    identities = [next(iter(found.values())).identity for found in (first, second, third)]
    assert identities[0] == identities[1] != identities[2]


def test_a_copy_that_was_deleted_while_its_pods_ran_has_vanished() -> None:
    story = Story()
    assert story.see(at(0), PLACED, {A: copy()}) == {}
    assert story.see(at(1), PLACED) == {}, "the hub's own watch may be behind: it may show Finished next"
    found = story.see(at(2), workload(evicted_at=at(2)))
    assert found[FindingCode.COPY_VANISHED].cluster == A
    assert found[FindingCode.COPY_VANISHED].since == at(1)


def test_a_copy_that_is_gone_while_the_hub_says_admitted_is_told_after_a_while() -> None:
    """Kueue 0.17.0 waits workerLostTimeout before it says anything."""
    story = Story()
    story.see(at(0), PLACED, {A: copy()})
    assert story.see(at(5), PLACED) == {}
    assert list(story.see(at(16), PLACED)) == [FindingCode.COPY_VANISHED]


def test_fr_rac_03_a_copy_that_vanished_after_its_pods_had_ended_has_an_unknown_outcome() -> None:
    """ttlSecondsAfterFinished: 0 on the worker. What looked complete must not be run again unasked."""
    story = Story()
    story.see(at(0), PLACED, {A: copy()})
    story.see(at(1), PLACED, {A: copy(bound_pods=0)})
    story.see(at(2), PLACED)
    found = story.see(at(3), workload(evicted_at=at(3)))
    assert list(found) == [FindingCode.OUTCOME_UNKNOWN]
    assert found[FindingCode.OUTCOME_UNKNOWN].detail.ran


def test_a_copy_that_was_seen_finished_and_is_gone_has_an_unknown_outcome() -> None:
    story = Story()
    story.see(at(0), PLACED, {A: copy(finished=True, finished_reason="Succeeded", bound_pods=0)})
    assert list(story.see(at(3), workload(), {})) == [FindingCode.OUTCOME_UNKNOWN], "the hub waits again already"


def test_a_job_that_finishes_as_it_should_leaves_nothing() -> None:
    story = Story()
    story.see(at(0), PLACED, {A: copy()})
    story.see(at(1), PLACED, {A: copy(finished=True, finished_reason="Succeeded", bound_pods=0)})
    assert story.see(at(2), PLACED) == {}, "the copy goes a moment before the hub's Finished is seen"
    assert story.see(at(3), replace(PLACED, finished=True, finished_reason="Succeeded")) == {}
    assert story.memory == {}


def test_an_eviction_that_the_hub_began_accuses_nobody() -> None:
    """Preemption on the hub, an operator's Retry, a move: the copy is deactivated and deleted by MultiKueue."""
    story = Story()
    story.see(at(0), PLACED, {A: copy()})
    evicted = workload(evicted_at=at(1))
    story.see(at(1), evicted, {A: copy()})
    assert story.see(at(2), evicted, {A: copy(active=False, evicted_at=at(2), evicted_reason="Deactivated")}) == {}
    assert story.see(at(4), evicted) == {}
    assert story.see(at(5), workload()) == {}


def test_what_an_eviction_left_behind_is_told_until_it_is_cleared_or_its_copy_has_quota() -> None:
    """The hub may reserve quota again within 0.2 s, and nominates nobody but the old cluster."""
    story = Story()
    assert list(story.see(at(0), workload(evicted_at=at(0), nominated=(A,)))) == [FindingCode.LEFT_BEHIND]
    assert list(story.see(at(0.3), NOMINATED)) == [FindingCode.LEFT_BEHIND]
    waiting = copy(quota_reserved_at=None, admitted_at=None, bound_pods=0)
    assert list(story.see(at(0.5), NOMINATED, {A: waiting})) == [FindingCode.LEFT_BEHIND]
    assert story.see(at(0.6), NOMINATED, {A: copy(bound_pods=0)}) == {}, "too late: that copy may win"
    assert story.see(at(0.7), NOMINATED, {A: worker(A, now=at(-100))}) == {}, "not looked at, so not revoked"
    story.see(at(1), workload())
    assert story.see(at(2), NOMINATED, {A: waiting}) == {}, "a nomination of ours since then"


def test_a_copy_that_outlives_the_hubs_eviction_was_not_its_cause() -> None:
    """Pods with a long grace period: the copy goes minutes after the hub evicted, by MultiKueue's hand."""
    story = Story()
    story.see(at(0), PLACED, {A: copy()})
    evicted = workload(evicted_at=at(1))
    story.see(at(5), evicted, {A: copy()})
    assert story.see(at(90), evicted) == {FindingCode.EVICTION_STUCK: story.see(at(90), evicted)[_STUCK]}
    assert story.see(at(95), workload()) == {}


_STUCK = FindingCode.EVICTION_STUCK


def test_a_worker_that_was_away_does_not_make_its_copy_vanish() -> None:
    story = Story()
    story.see(at(0), PLACED, {A: copy()})
    away = worker(A, now=T0)
    assert story.see(at(300), PLACED, {A: away}) == {}
    assert story.see(at(301), PLACED, {A: copy()}) == {}


def test_a_new_attempt_begins_without_the_old_ones_memory() -> None:
    story = Story()
    story.see(at(0), PLACED, {A: copy(evicted_at=at(0), evicted_reason="Preempted")})
    story.see(at(1), workload())
    assert story.memory == {}
    assert story.see(at(2), workload(nominated=(B,)), {B: copy(uid="c2", admitted_at=at(2))}) == {}


def test_fr_cli_01_an_eviction_is_told_with_its_age() -> None:
    fresh = worker(A, copy(evicted_at=at(0), evicted_reason="Preempted"), now=at(12 * 60))
    finding = one_look(PLACED, {A: fresh}, at(12 * 60))[FindingCode.COPY_EVICTED]
    text = finding_text(finding, at(12 * 60))
    assert text.startswith("not running: evicted on a 12 min ago (Preempted)")


@pytest.mark.parametrize("code", list(FindingCode))
def test_every_finding_has_words(code: FindingCode) -> None:
    text = finding_text(Finding(code, WorkloadUid("w1"), "autonomy/job-a", A, since=T0), at(90))
    assert 20 < len(text) < 500
