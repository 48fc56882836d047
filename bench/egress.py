"""`egress`: what moving data costs, and what saving it costs those who wait, on jobs that read terabytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.contest import Course, contest, summaries
from bench.rows import Bar, Row

SCENARIO = "data-heavy"
PEER, OWN, HOME = "all-at-once", "entrepot", "home-only"
GB, USD = 10**9, 10**6
BILL = Bar("ratio", "at most", 0.3)
WAIT = Bar("ratio", "at most", 1.1)


def run(say: Callable[[str], None]) -> Sequence[Row]:
    found = summaries(contest(Course(SCENARIO), (PEER, OWN, HOME), say))
    peer, own, home = found[PEER], found[OWN], found[HOME]
    wait, base = own.all_jobs.wait_s, peer.all_jobs.wait_s
    at_home = home.all_jobs.wait_s.mean
    return (
        Row("egress bill", own.egress_usd_micro / USD, "USD", PEER, peer.egress_usd_micro / USD, BILL),
        Row("mean wait", wait.mean, "s", PEER, base.mean, WAIT),
        Row("wait p99", wait.p99, "s", PEER, base.p99),
        Row("bytes between regions", own.egress_bytes / GB, "GB", PEER, peer.egress_bytes / GB),
        Row("whole bill", own.cost_usd_micro / USD, "USD", PEER, peer.cost_usd_micro / USD),
        Row("mean wait beside home-only", wait.mean, "s", HOME, at_home),
        Row("jobs a seed", own.all_jobs.jobs, "jobs"),
        Row("jobs that never ended", own.all_jobs.counts.unfinished, "jobs", PEER, peer.all_jobs.counts.unfinished),
    )
