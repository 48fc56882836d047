"""The dispatch bench's arithmetic: states of a Workload, waits, rates, counted requests, rows with their bars."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from bench.dispatch_figures import Idle, Turn, mean, percentile, waits
from bench.dispatch_observer import Timeline, looks, parse_requests, states_of, writes
from bench.dispatch_rows import rows_of

METRICS = """\
# HELP apiserver_request_total [STABLE] Counter of apiserver requests
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",dry_run="",group="kueue.x-k8s.io",resource="workloads",subresource="",verb="GET"} 7
apiserver_request_total{code="404",dry_run="",group="kueue.x-k8s.io",resource="workloads",subresource="",verb="GET"} 5
apiserver_request_total{code="200",group="kueue.x-k8s.io",resource="workloads",subresource="status",verb="PATCH"} 3
apiserver_request_total{code="200",group="coordination.k8s.io",resource="leases",subresource="",verb="PUT"} 90
apiserver_request_sum{verb="GET"} 4
"""


def a_workload(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "job-a", "uid": "u"}, "status": status}


@pytest.mark.parametrize(
    ("workload", "states"),
    [
        pytest.param(a_workload(), {"created"}, id="one that was only just made"),
        pytest.param(
            a_workload(
                conditions=[{"type": "QuotaReserved", "status": "True"}, {"type": "PodsReady", "status": "False"}],
                admissionChecks=[{"name": "fleet", "state": "Pending"}],
            ),
            {"created", "quotareserved", "pending"},
            id="a condition counts when it is true",
        ),
        pytest.param(a_workload(nominatedClusterNames=["a"]), {"created", "nominated"}, id="nominated"),
        pytest.param(a_workload(clusterName="a"), {"created", "placed"}, id="on a cluster"),
    ],
)
def test_a_version_of_a_workload_shows_states(workload: dict[str, Any], states: set[str]) -> None:
    assert states_of(workload) == states


def test_requests_are_counted_by_verb_and_resource_whatever_their_code_and_subresource() -> None:
    assert parse_requests(METRICS) == {("GET", "workloads"): 12, ("PATCH", "workloads"): 3, ("PUT", "leases"): 90}


def test_writes_are_those_that_jobs_cause_and_looks_are_reads_on_workers() -> None:
    requests = Counter(
        {
            ("hub", "PATCH", "workloads"): 3,
            ("hub", "POST", "events"): 2,
            ("hub", "PUT", "leases"): 90,
            ("hub", "GET", "workloads"): 1000,
            ("worker-1", "POST", "workloads"): 1,
            ("worker-1", "GET", "workloads"): 12,
            ("worker-2", "GET", "workloads"): 12,
            ("worker-2", "GET", "pods"): 50,
        }
    )
    assert writes(requests, on_hub=True) == 5
    assert writes(requests, on_hub=False) == 1
    assert looks(requests) == 24


@pytest.mark.parametrize(
    ("values", "percent", "found"),
    [([], 50, None), ([3.0], 99, 3.0), ([1.0, 2.0, 3.0, 4.0], 50, 2.0), ([float(n) for n in range(1, 101)], 99, 99.0)],
)
def test_a_percentile_is_a_value_that_occurred(values: list[float], percent: int, found: float | None) -> None:
    assert percentile(values, percent) == found


def test_a_mean_with_something_unknown_is_unknown() -> None:
    assert mean([1.0, 3.0]) == 2.0
    assert mean([1.0, None]) is None
    assert mean([]) is None


def timeline(job: str, **seen_s: float) -> Timeline:
    return Timeline(job, dict(seen_s))


def turn(contender: str, placed_s: float, finished_s: float, copies: int = 2) -> Turn:
    backlog = (
        timeline("a", created=100, quotareserved=101, placed=103, finished=110),
        timeline("b", created=100, quotareserved=101, placed=100 + placed_s, finished=100 + finished_s),
    )
    requests = Counter({("hub", "PATCH", "workloads"): 6, ("worker-1", "GET", "workloads"): 24})
    return Turn(contender, 100.0, backlog, (timeline("urgent-0", created=105, placed=112),), copies, requests)


def test_rates_run_until_the_last_job_and_only_the_backlog_counts() -> None:
    done = turn("x", placed_s=20, finished_s=40)
    assert done.to_cluster_per_s == 2 / 20
    assert done.half_to_cluster_per_s == 1 / 3
    assert done.to_finished_per_s == 2 / 40
    assert done.reserved_to_cluster_s == [2, 19]
    assert done.urgent_wait_s == [7]
    assert done.writes_per_job(on_hub=True) == 6 / 3
    assert done.looks_per_job(workers=4) == 24 / 4 / 3


def test_a_job_that_ended_before_its_cluster_was_written_was_on_one_all_the_same() -> None:
    assert waits([timeline("a", quotareserved=1, finished=9)], "quotareserved", ("placed", "finished")) == [8]


def test_a_turn_in_which_a_job_did_not_get_there_has_no_rate() -> None:
    stuck = Turn("x", 0.0, (timeline("a", created=0),), (), 0, Counter())
    assert stuck.to_cluster_per_s is None
    assert stuck.reserved_to_cluster_s == []


def test_rows_hold_the_bars_of_the_issue_against_means_of_one_run() -> None:
    turns = {
        "minimal nominator": [turn("minimal nominator", 20, 40), turn("minimal nominator", 20, 40)],
        "Entrepot": [turn("Entrepot", 20, 30, copies=3), turn("Entrepot", 20, 30, copies=3)],
        "AllAtOnce": [turn("AllAtOnce", 40, 45, copies=12)],
    }
    idle = {
        "Entrepot": Idle((timeline("a", quotareserved=1, pending=1.03, nominated=1.06),)),
        "minimal nominator": Idle((timeline("a", quotareserved=1, pending=0.9, nominated=1.02),)),
    }
    rows = {row.name: row for row in rows_of(turns, {8: turn("bound", 50, 60)}, idle)}
    assert rows["to a cluster, beside AllAtOnce"].ratio == 2
    assert rows["to a cluster, beside AllAtOnce"].holds is True
    assert rows["to a cluster, beside minimal nominator"].holds is True
    assert rows["to Finished, beside AllAtOnce"].holds is True
    assert rows["remote copies, beside minimal nominator"].holds is True
    late = rows["quota reserved to nominated, idle hub, p99"]
    assert (round(late.value or 0), round(late.peer_value or 0), late.holds) == (60, 20, False)
    ours = rows["quota reserved and check open to nominated, idle hub, p99"]
    assert (round(ours.value or 0), round(ours.peer_value or 0)) == (30, 20)
    assert rows["first half to a cluster, at most 8 outstanding"].peer == "no bound"
    assert len(rows) == len({row.name for row in rows.values()}), "names are unique within the bench"
