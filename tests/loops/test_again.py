"""Until when a look comes out as the last one did, if nothing happens: what time alone can change."""

from __future__ import annotations

from datetime import datetime, timedelta

from dispatcher.core.decision import Outcome
from dispatcher.core.waiting import Phase
from dispatcher.core.window import window_until
from dispatcher.core.workload import Avoided
from dispatcher.loops.rounds import UNSEEN_LIMIT_S
from tests.loops.bench import Bench
from tests.loops.jobs import gang
from tests.loops.test_order import FIRST_COME, big, by, small


def in_s(bench: Bench, at: datetime) -> float:
    return (at - bench.clock.now()).total_seconds()


async def test_with_nobody_waiting_it_is_the_next_date_that_a_rule_or_a_price_reads(bench: Bench) -> None:
    await bench.step()
    assert bench.dispatch.again_at() == window_until(bench.state.policy, bench.clock.now())
    assert in_s(bench, bench.dispatch.again_at()) > 0


async def test_a_nomination_that_no_view_shows_is_given_up_after_its_time(bench: Bench) -> None:
    bench.fleet.submit(gang("train"))
    await bench.until(lambda: bench.phase("train") is Phase.NOMINATED)
    assert bench.dispatch.rounds.open
    assert 0 < in_s(bench, bench.dispatch.again_at()) <= UNSEEN_LIMIT_S


async def test_who_is_held_up_may_go_when_something_should_have_ended(bench: Bench) -> None:
    by(bench, FIRST_COME)
    for at in range(24):
        bench.fleet.submit(small(f"first-{at}", seconds=300 if at < 12 else 600))
    for _ in range(4):
        await bench.step()
    bench.fleet.submit(big(pods=3, seconds=600))
    await bench.step()
    bench.fleet.submit(small("late", seconds=3600))
    for _ in range(9):
        await bench.step()
    assert bench.decision("late").outcome is Outcome.WAIT
    assert not bench.state.holds, "nothing is on its way any more"
    ends = min(
        copy.admitted_at
        for view in bench.state.worker_views().values()
        for copy in view.copies.values()
        if copy.admitted_at
    )
    assert bench.dispatch.again_at() == ends + timedelta(seconds=300)


async def test_what_speaks_against_going_back_grows_less_all_the_time(bench: Bench) -> None:
    bench.fleet.submit(gang("train"))
    await bench.step()
    now = bench.clock.now()
    until = now + timedelta(hours=1)
    bench.state.avoided[bench.workload("train").uid] = (Avoided(None, "copy-evicted", now, until, excluded=False),)
    assert bench.dispatch.again_at() == now
