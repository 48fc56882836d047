"""How long runs usually last: what counts, when it says something, and that unknown stays unknown."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from dispatcher.core.context import estimate_of
from dispatcher.core.decision import Basis, Estimate
from dispatcher.core.explain_order import run_time_text
from dispatcher.core.history import KEPT, LEAST, MOST_KINDS, Ended, History, usual_of
from dispatcher.core.ids import QueueName, WorkloadUid
from dispatcher.core.keeping import reference_s, run_s
from dispatcher.core.workload import Declaration, UsualRun, WorkloadClass
from tests.core_builders import FLAVOR, NOW, QUEUE, flavor_policy, plan, request, site

KIND = (QUEUE, WorkloadClass.TRAINING)


def history(*durations: int) -> History:
    found = History()
    for at, duration_s in enumerate(durations):
        found.add(KIND, Ended(NOW + timedelta(seconds=at), WorkloadUid(f"uid-{at}"), duration_s))
    return found


@pytest.mark.parametrize(
    ("durations", "usual"),
    [
        pytest.param((600,) * (LEAST - 1), None, id="few runs say nothing, which is not 0"),
        pytest.param((600,) * LEAST, UsualRun(600, LEAST), id="enough runs do"),
        pytest.param((600, 600, 600, 600, 900_000), UsualRun(600, 5), id="one that hung does not move it"),
        pytest.param((1, 1, 600, 600, 600), UsualRun(600, 5), id="nor do some that had nothing to do"),
        pytest.param((0, 600, 600, 600, 600), None, id="a run of no length tells nothing"),
        pytest.param((1,) * 5, UsualRun(60, 5), id="rounded up, so never 0"),
        pytest.param((7201,) * 5, UsualRun(7800, 5), id="rounded up to ten minutes beyond two hours"),
        pytest.param((86_401,) * 5, UsualRun(90_000, 5), id="and to an hour beyond a day"),
        pytest.param((99_000,) * KEPT + (600,) * KEPT, UsualRun(600, KEPT), id="only the newest count"),
    ],
)
def test_what_runs_say(durations: tuple[int, ...], usual: UsualRun | None) -> None:
    assert history(*durations).usual().get(KIND) == usual


def test_what_is_remembered_is_bounded() -> None:
    found = History()
    for at in range(MOST_KINDS + 10):
        for run in range(LEAST):
            ended = Ended(NOW + timedelta(seconds=at), WorkloadUid(f"uid-{at}-{run}"), 60)
            found.add((QueueName(f"queue-{at:05d}"), WorkloadClass.TRAINING), ended)
    known = found.usual()
    assert len(known) == MOST_KINDS
    assert min(known)[0] == "queue-00010", "those of which nothing has ended for longest went"


@pytest.mark.parametrize(
    ("declared_s", "usual", "expected"),
    [
        pytest.param(50, UsualRun(600, 9), Estimate(50, Basis.DECLARED), id="what the owner declares stands before it"),
        pytest.param(None, UsualRun(600, 9), Estimate(600, Basis.HISTORY, 9), id="then history"),
        pytest.param(None, None, None, id="then the default of the class"),
    ],
)
def test_which_estimate_is_used(declared_s: int | None, usual: UsualRun | None, expected: Estimate | None) -> None:
    training = plan(WorkloadClass.TRAINING)
    said = Declaration(workload_class=WorkloadClass.TRAINING, expected_duration_s=declared_s)
    found = estimate_of(request(declared=said, usual=usual), training)
    assert found == (expected or Estimate(training.default_duration_s, Basis.CLASS_DEFAULT))


def test_history_is_given_only_where_nothing_is_declared() -> None:
    silent = request(declared=Declaration(workload_class=WorkloadClass.TRAINING))
    assert usual_of(silent, history(*(600,) * 5).usual()) == UsualRun(600, 5)
    told = request(declared=Declaration(workload_class=WorkloadClass.TRAINING, expected_duration_s=50))
    assert usual_of(told, history(*(600,) * 5).usual()) is None


def test_a_run_is_told_at_the_reference_speed() -> None:
    """What ran for an hour on a flavor of twice the speed is two hours of work, and is an hour there again."""
    fast = site("onprem", flavors=[replace(flavor_policy(), speed_permille=2000)])
    reference = reference_s(3600, [FLAVOR], fast, WorkloadClass.TRAINING)
    assert reference == 7200
    assert run_s(Estimate(reference, Basis.HISTORY), [FLAVOR], fast, WorkloadClass.TRAINING) == 3600
    assert reference_s(3600, [], None, None) == 3600, "unknown flavors count as of the reference"


def test_the_words_say_where_it_comes_from() -> None:
    text = run_time_text(Estimate(7200, Basis.HISTORY, 12))
    assert text == "2 h (from the history of this queue and class: 12 runs)"
