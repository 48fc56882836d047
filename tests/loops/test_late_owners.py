"""A Workload and its job come by two watches: a job that is late is waited for, one that stays away is told."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from dispatcher.core.ports import HubPort
from dispatcher.core.snapshot import HubView
from dispatcher.core.waiting import Phase
from dispatcher.loops.planning import OWNER_GRACE_S
from tests.loops.bench import Bench
from tests.loops.jobs import gang

PROBLEM = "its Job cannot be seen: the daemon's account needs list and watch on that kind"


@dataclass(slots=True)
class Behind:
    """A hub whose watch of jobs has shown none yet. A connector says so of each Workload (`projected`), or leaves it to
    whoever looks for the job."""

    port: HubPort
    projected: bool
    here: bool = False

    def view(self) -> HubView:
        seen = self.port.view()
        if self.here:
            return seen
        if not self.projected:
            return replace(seen, owners={})
        workloads = {uid: replace(workload, problem=PROBLEM) for uid, workload in seen.workloads.items()}
        return replace(seen, owners={}, workloads=workloads)

    def __getattr__(self, name: str) -> object:
        return getattr(self.port, name)


@pytest.fixture(params=[True, False], ids=["the connector says so", "the job is just not there"])
def late(bench: Bench, request: pytest.FixtureRequest) -> Behind:
    found = Behind(bench.state.hub, request.param)
    bench.state.hub = found  # type: ignore[assignment]
    return found


def told(bench: Bench) -> list[str]:
    return [message for reason, message in bench.events("train-a") if reason == "InputProblem"]


async def test_a_job_that_comes_some_seconds_after_its_workload_is_dispatched_and_nobody_is_told(
    bench: Bench, late: Behind
) -> None:
    bench.fleet.submit(gang("train-a"))
    for _ in range(int(OWNER_GRACE_S) - 1):
        await bench.step()
    assert bench.state.latest == {}, "what the job declares is not known: nothing is decided without it"
    late.here = True
    await bench.until(bench.finished("train-a"), within_s=30)
    assert told(bench) == []
    assert bench.state.problems == {}


async def test_a_job_that_cannot_be_seen_is_told_once_after_the_grace(bench: Bench, late: Behind) -> None:
    bench.fleet.submit(gang("train-a"))
    await bench.until(lambda: bool(bench.state.problems), within_s=OWNER_GRACE_S + 3)
    for _ in range(5):
        await bench.step()
    assert len(told(bench)) == 1
    assert "not visible" in told(bench)[0]
    assert (PROBLEM in told(bench)[0]) is late.projected
    assert bench.phase("train-a") is (Phase.UNREADABLE if late.projected else Phase.WAITING)
    late.here = True
    await bench.until(bench.finished("train-a"), within_s=30)
    assert bench.state.problems == {}


async def test_what_is_wrong_with_a_job_that_is_seen_is_told_at_once(bench: Bench) -> None:
    bench.fleet.submit(gang("train-a", says={"workload-class": "no-such-class"}))
    await bench.step()
    await bench.step()
    assert len(told(bench)) == 1
