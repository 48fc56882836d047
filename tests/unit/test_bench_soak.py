"""What the soak judges by: flat memory, one run at a time, and every problem counted."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench.soak import running_twice
from bench.soak_daemon import Life, Sample, Soaked, grown, slope_mib_per_hour
from bench.soak_faults import _Edited
from tests.local.observer import Change, PodSeen


def samples(*rss_mib: float) -> list[Sample]:
    return [Sample(at_s=number * 60.0, rss_mib=rss, files=20, tasks=30) for number, rss in enumerate(rss_mib)]


def test_a_slope_is_not_moved_by_a_single_spike() -> None:
    assert slope_mib_per_hour(samples(*[100.0] * 10, 400.0, *[100.0] * 10)) == 0
    assert slope_mib_per_hour(samples(*(100.0 + n for n in range(20)))) == pytest.approx(60)


def test_growth_is_from_the_first_to_the_last_quarter() -> None:
    assert grown([1, 1, 5, 9, 2, 7, 4, 4]) == 3
    assert grown([1, 2]) is None


def pod(revision: int, cluster: str, phase: str, name: str = "a") -> Change:
    return Change(revision, cluster, "pods", ("team", name), f"{cluster}/{name}", PodSeen("job", "node", phase))


def test_pods_of_one_job_on_two_clusters_at_one_instant_are_a_second_run() -> None:
    gone = Change(3, "w1", "pods", ("team", "a"), "w1/a", None)
    assert running_twice([pod(1, "w1", "Running"), gone, pod(4, "w2", "Running")]) == []
    assert running_twice([pod(1, "w1", "Succeeded"), pod(2, "w2", "Running")]) == []
    assert running_twice([pod(1, "w1", "Running"), pod(2, "w2", "Pending")]) == ["team/job on w1 and w2"]


def line(event: str, level: str, second: int) -> str:
    return json.dumps({"event": event, "level": level, "timestamp": f"2026-08-01T08:00:{second:02d}Z"}) + "\n"


def soaked(folder: Path, log: str, problems: dict[str, float]) -> Soaked:
    (folder / "daemon.log").write_text(log)
    life = Life(0.0, 0, problems=problems, scraped_at=datetime(2026, 8, 1, 8, 0, 30, tzinfo=UTC).timestamp())
    return Soaked(fleet=None, folder=folder, blueprint=folder, kubeconfig=folder, lives=[life])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("log", "problems", "found"),
    [
        (line("store_away", "error", 1), {"store_away": 1.0}, 0),
        (line("store_away", "error", 1), {}, 1),
        (line("store_away", "error", 1) * 2, {"store_away": 1.0}, 1),
        (line("store_away", "info", 1), {}, 0),
        (line("store_away", "error", 59), {}, 0),
        ("Traceback (most recent call last)\n", {}, 1),
        ('{"event": "deci', {}, 0),
    ],
    ids=[
        "counted",
        "not counted",
        "counted once of twice",
        "no problem",
        "after the last scrape",
        "no log line",
        "cut off by a kill",
    ],
)
def test_every_problem_of_the_log_has_to_be_in_a_metric(
    tmp_path: Path, log: str, problems: dict[str, float], found: int
) -> None:
    assert len(soaked(tmp_path, log, problems).unmeasured()) == found


def test_an_edit_is_taken_back(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text("good")
    with _Edited(file, lambda text: text + " and bad"):
        assert file.read_text() == "good and bad"
    assert file.read_text() == "good"
