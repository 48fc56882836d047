"""Writes on a Workload itself: our annotations and spec.active in one guarded patch, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from connectors.kubernetes.amendment import amendment_call
from connectors.kubernetes.decode import hub_workload
from dispatcher.core.errors import Refused
from dispatcher.core.ids import WorkloadUid
from dispatcher.core.ports import Amendment

AMENDMENT = Amendment(WorkloadUid("u"), "team-a", "job-x", "41", (("entrepot.dev/idle-notice", "a/b"),))


def test_a_notice_names_the_version_that_it_was_judged_on_and_leaves_the_spec_alone() -> None:
    call = amendment_call(AMENDMENT)
    assert (call.method, call.path) == ("PATCH", "/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/workloads/job-x")
    assert call.content_type == "application/merge-patch+json"
    assert call.body == {
        "metadata": {"uid": "u", "resourceVersion": "41", "annotations": {"entrepot.dev/idle-notice": "a/b"}}
    }


def test_an_end_takes_its_notice_off_and_deactivates_in_the_same_write() -> None:
    call = amendment_call(replace(AMENDMENT, annotations=(("entrepot.dev/idle-notice", None),), deactivate=True))
    assert call.body is not None
    assert call.body["spec"] == {"active": False}
    assert call.body["metadata"]["annotations"] == {"entrepot.dev/idle-notice": None}


@pytest.mark.parametrize(
    "bad",
    [
        replace(AMENDMENT, resource_version=""),
        replace(AMENDMENT, uid=WorkloadUid("")),
        replace(AMENDMENT, annotations=(("kueue.x-k8s.io/job-owner-name", "x"),)),
    ],
    ids=["no version", "no uid", "an annotation of Kueue's"],
)
def test_what_is_unguarded_or_not_ours_is_never_sent(bad: Amendment) -> None:
    with pytest.raises(Refused):
        amendment_call(bad)


def test_what_was_written_is_read_back() -> None:
    annotations = {
        "entrepot.dev/idle-notice": "a/b",
        "entrepot.dev/idle-ended": "c",
        "entrepot.dev/idle-ending": "d",
        "e": "f",
    }
    found = hub_workload({"metadata": {"name": "job-x", "annotations": annotations}})
    assert (found.idle_notice, found.idle_ended, found.idle_ending) == ("a/b", "c", "d")
