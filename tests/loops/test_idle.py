"""Notebooks that nobody uses: notice, the slice freed on hub and worker, and the way back; on the embedded fleet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from dispatcher.core.errors import Refused, Transient
from dispatcher.core.idle import Stage
from dispatcher.core.ids import ClusterName, QueueName
from dispatcher.core.lease import Always
from dispatcher.core.waiting import Phase
from dispatcher.web.look import Look
from tests.loops.jobs import SLICE, notebook
from tests.loops.notebooks import NAMESPACE, NOTICE_S, TIMEOUT_S, IdleBench, close_all, notebooks, patient


@pytest_asyncio.fixture(autouse=True)
async def _closed() -> AsyncIterator[None]:
    yield
    await close_all()


async def running(path: Path, *names: str) -> IdleBench:
    found = await notebooks(path)
    for name in names or ("nb",):
        found.bench.fleet.submit(notebook(name))
    for name in names or ("nb",):
        await found.until(name, Phase.PLACED)
    await found.steps(3)
    return found


async def noticed(path: Path) -> IdleBench:
    """A notebook that was given notice a moment ago."""
    found = await running(path)
    found.watched("nb", used_s=0)
    await found.step(TIMEOUT_S)
    found.watched("nb")
    await found.step()
    assert found.writes("notice") == 1
    await found.step()
    assert found.stage("nb") is Stage.NOTICED
    return found


def slices(found: IdleBench) -> tuple[int, int]:
    """Slices reserved: by the queue on the hub, and on the worker."""
    hub = found.bench.fleet.hub_cluster.kueue.queues[QueueName("interactive")]
    usage = [entry for w in hub.reserved.values() if w.assignment is not None for entry in w.assignment.usage]
    reserved = sum(amount for (_, resource), amount in usage if resource == SLICE)
    queue = found.bench.fleet.worker_view("onprem-eu").queues[QueueName("interactive")]
    return reserved, sum(quota.reserved for quota in queue.quotas if quota.resource == SLICE)


async def test_an_idle_slice_is_freed_on_hub_and_worker_after_notice_and_not_before(tmp_path: Path) -> None:
    found = await noticed(tmp_path)
    notice = found.bench.workload("nb").idle_notice
    assert slices(found) == (1, 1)
    await found.step(NOTICE_S - 10)
    found.watched("nb")
    await found.step()
    assert (found.stage("nb"), slices(found)) == (Stage.NOTICED, (1, 1)), notice
    await found.step(20)
    found.watched("nb")
    await found.until("nb", Phase.INACTIVE)
    await found.steps(10)
    assert slices(found) == (0, 0)
    assert found.bench.fleet.worker_view("onprem-eu").copies == {}
    courses = ("notice", "end", "evict", "close")
    assert (found.stage("nb"), [found.writes(course) for course in courses]) == (Stage.ENDED, [1, 1, 1, 1])
    assert await found.log() == ["notice", "end"]
    assert found.told("nb") == ["IdleNotice", "FreedAsIdle"]
    assert found.bench.workload("nb").idle_notice == ""


async def test_what_was_freed_is_started_again_by_its_user_and_begins_anew(tmp_path: Path) -> None:
    found = await noticed(tmp_path)
    await found.step(NOTICE_S)
    found.watched("nb")
    await found.until("nb", Phase.INACTIVE)
    await found.step(100)
    found.bench.fleet.set_active(found.bench.workload("nb").uid, True)
    await found.until("nb", Phase.PLACED)
    await found.steps(3)
    assert slices(found) == (1, 1)
    assert found.stage("nb") is Stage.UNKNOWN, "what was seen of the earlier run says nothing of this one"
    found.watched("nb")
    await found.step()
    assert found.stage("nb") is Stage.USED, "not used in this run: idle since it began, and that is a moment ago"
    await found.step(TIMEOUT_S)
    found.watched("nb")
    await found.steps(2)
    assert await found.log() == ["notice", "end", "notice"]


async def test_use_during_the_notice_takes_it_back(tmp_path: Path) -> None:
    found = await noticed(tmp_path)
    await found.step(NOTICE_S - 5)
    found.watched("nb", used_s=1)
    await found.steps(3)
    assert (found.stage("nb"), found.bench.workload("nb").idle_notice) == (Stage.USED, "")
    await found.step(NOTICE_S)
    found.watched("nb")
    await found.steps(5)
    assert found.bench.phase("nb") is Phase.PLACED
    assert await found.log() == ["notice", "cancel"]
    assert found.told("nb") == ["IdleNotice", "IdleNoticeCancelled"]


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"last-activity": "an hour ago", "activity-checked": "now"},
        {"last-activity": "2026-08-01T08:00:30Z"},
        {"activity-checked": "2026-08-01T18:00:00Z"},
    ],
    ids=["nobody watches it", "nobody can read it", "nobody has looked since", "nobody says what they saw"],
)
async def test_work_of_whose_use_nothing_is_known_is_left_alone(tmp_path: Path, said: dict[str, str]) -> None:
    found = await running(tmp_path)
    found.bench.fleet.annotate("Job", NAMESPACE, "nb", {f"entrepot.dev/{k}": v for k, v in said.items()})
    for _ in range(5):
        await found.step(TIMEOUT_S)
    assert found.bench.phase("nb") is Phase.PLACED
    assert await found.log() == []


async def test_a_dead_exporter_ends_nothing_even_after_notice(tmp_path: Path) -> None:
    found = await noticed(tmp_path)
    for _ in range(5):
        await found.step(TIMEOUT_S)
    assert (found.bench.phase("nb"), found.stage("nb")) == (Phase.PLACED, Stage.NOTICED)
    found.watched("nb")
    await found.until("nb", Phase.INACTIVE)


async def test_a_cluster_that_cannot_be_seen_is_left_alone(tmp_path: Path) -> None:
    found = await noticed(tmp_path)
    found.bench.fleet.break_link("onprem-eu")
    await found.step(NOTICE_S)
    found.watched("nb")
    await found.steps(5)
    assert (found.stage("nb"), found.writes("end")) == (Stage.UNSEEN, 0)
    found.bench.fleet.mend_link("onprem-eu")
    await found.steps(3)
    found.watched("nb")
    await found.until("nb", Phase.INACTIVE)


async def test_only_the_idle_one_of_two_is_freed(tmp_path: Path) -> None:
    found = await running(tmp_path, "busy", "nb")
    for name in ("busy", "nb"):
        found.watched(name, used_s=0)
    for _ in range(4):
        await found.step(TIMEOUT_S / 2)
        found.watched("busy", used_s=10)
        found.watched("nb")
        await found.steps(2)
    await found.until("nb", Phase.INACTIVE)
    await found.steps(5)
    assert (found.bench.phase("busy"), slices(found)) == (Phase.PLACED, (1, 1))


async def test_a_policy_without_timeout_takes_notices_back(tmp_path: Path) -> None:
    found = await noticed(tmp_path)
    found.bench.state.policy = patient(None)
    await found.steps(3)
    assert (found.stage("nb"), found.bench.workload("nb").idle_notice) == (None, "")
    assert await found.log() == ["notice", "cancel"]


async def test_a_replica_that_stands_by_looks_and_writes_nothing(tmp_path: Path) -> None:
    class Standby(Always):
        def may_write(self, now_s: float) -> bool:
            return False

    found = await running(tmp_path)
    found.loop.leadership = Standby()
    found.watched("nb", used_s=0)
    await found.step(TIMEOUT_S)
    found.watched("nb")
    await found.steps(5)
    assert (found.stage("nb"), found.bench.workload("nb").idle_notice) == (Stage.IDLE, "")
    assert await found.log() == []


async def test_a_silent_hub_decides_nothing(tmp_path: Path) -> None:
    found = await noticed(tmp_path)
    found.watched("nb")
    found.bench.fleet.silence("hub")
    await found.step(NOTICE_S + 100)
    await found.loop.cycle()
    assert found.writes("end") == 0


async def test_an_unanswered_end_is_not_asked_for_twice(tmp_path: Path) -> None:
    found = await noticed(tmp_path)
    await found.step(NOTICE_S)
    found.watched("nb")
    for _ in range(3):
        found.bench.fleet.lose_next_reply()
    await found.steps(15)
    assert found.bench.phase("nb") is Phase.INACTIVE
    courses = ("end", "evict", "close")
    assert [found.writes(course) for course in courses] == [0, 0, 0]
    assert [found.writes(course, "unknown") for course in courses] == [1, 1, 1]
    assert found.told("nb") == ["IdleNotice", "FreedAsIdle"]
    assert await found.log() == ["notice", "end"]


@pytest.mark.parametrize(
    ("error", "result"),
    [(Refused("workloads is forbidden"), "refused"), (Transient("timeout"), "unknown")],
    ids=["the right is missing", "the hub does not answer"],
)
async def test_a_write_that_fails_is_counted_tried_again_and_recorded_once(
    tmp_path: Path, error: Refused | Transient, result: str
) -> None:
    found = await noticed(tmp_path)
    await found.step(NOTICE_S)
    found.watched("nb")
    found.bench.fleet.fail_next_write(error)
    await found.steps(8)
    assert (found.writes("end", result), found.writes("end")) == (1, 1)
    await found.until("nb", Phase.INACTIVE)
    assert await found.log() == ["notice", "end"]


async def test_nothing_is_done_that_cannot_be_put_on_record(tmp_path: Path) -> None:
    class Away:
        async def add(self, entries: list[object]) -> int:
            raise Transient("the store is away")

    found = await noticed(tmp_path)
    log, found.loop.audit = found.loop.audit, Away()  # type: ignore[assignment]
    await found.step(NOTICE_S)
    found.watched("nb")
    await found.steps(5)
    assert found.bench.phase("nb") is Phase.PLACED
    found.loop.audit = log
    await found.until("nb", Phase.INACTIVE)


async def test_the_api_tells_each_stage(tmp_path: Path) -> None:
    found = await noticed(tmp_path)

    def shown() -> object:
        look = Look.at(found.bench.state)
        return look.summary(found.bench.workload("nb")).idle

    told = shown()
    assert told is not None
    assert told.stage is Stage.NOTICED  # type: ignore[attr-defined]
    assert "unless it is used before" in told.text  # type: ignore[attr-defined]
    assert told.ends - found.now() < timedelta(seconds=NOTICE_S + 1)  # type: ignore[attr-defined]
    await found.step(NOTICE_S)
    found.watched("nb")
    await found.until("nb", Phase.INACTIVE)
    await found.steps(2)
    assert "Start it again: kubectl -n notebooks patch workload" in shown().text  # type: ignore[attr-defined]
    gauge = found.bench.metrics.idle.labels(Stage.ENDED)._value.get()
    assert (gauge, found.bench.state.workers[ClusterName("onprem-eu")].view().copies) == (1, {})


async def test_what_is_ending_is_sent_nowhere_again(tmp_path: Path) -> None:
    """The daemon is away between the eviction and the last write for so long that Kueue queues it again."""
    found = await noticed(tmp_path)
    await found.step(NOTICE_S)
    found.watched("nb")
    for _ in range(20):
        if found.writes("evict"):
            break
        await found.step()
    decided = found.bench.decision("nb").id
    for _ in range(50):
        await found.bench.step()
    workload = found.bench.workload("nb")
    assert (workload.quota_reserved_at is not None, workload.nominated, workload.cluster_name) == (True, (), None)
    assert found.bench.decision("nb").id == decided
    await found.until("nb", Phase.INACTIVE)
    await found.steps(5)
    assert slices(found) == (0, 0)
