"""Ending an attempt: one entry of the checks goes to Retry, guarded, and nothing else on the Workload is touched."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from connectors.kubernetes.eviction import eviction_call
from dispatcher.core.errors import Refused
from dispatcher.core.ids import WorkloadUid
from dispatcher.core.ports import Eviction

EVICTION = Eviction(WorkloadUid("u"), "team-a", "job-x", "41", "fleet", "ended by law: rule r, rules.yaml:3:1")
NOW = datetime(2026, 11, 29, 13, 0, 0, 999, tzinfo=timezone(timedelta(hours=1)))


def test_the_write_names_one_check_and_the_version_that_it_was_judged_on() -> None:
    call = eviction_call(EVICTION, NOW)
    assert (call.method, call.path) == (
        "PATCH",
        "/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/workloads/job-x/status",
    )
    assert call.content_type == "application/apply-patch+yaml"
    assert call.body is not None
    assert call.body["metadata"] == {"name": "job-x", "namespace": "team-a", "uid": "u", "resourceVersion": "41"}
    assert call.body["status"] == {
        "admissionChecks": [
            {
                "name": "fleet",
                "state": "Retry",
                "message": "ended by law: rule r, rules.yaml:3:1",
                "lastTransitionTime": "2026-11-29T12:00:00Z",
            }
        ]
    }


@pytest.mark.parametrize(
    "bad",
    [replace(EVICTION, resource_version=""), replace(EVICTION, check=""), replace(EVICTION, uid=WorkloadUid(""))],
    ids=["no version", "no check", "no uid"],
)
def test_an_unguarded_end_is_never_sent(bad: Eviction) -> None:
    with pytest.raises(Refused):
        eviction_call(bad, NOW)


def test_what_must_not_come_back_at_once_says_when_it_may() -> None:
    call = eviction_call(replace(EVICTION, requeue_after_s=30), NOW)
    assert call.body is not None
    assert call.body["status"]["admissionChecks"][0]["requeueAfterSeconds"] == 30
