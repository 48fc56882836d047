"""What the daemon answers about rules: the work for previews, the shadow, the standing of the rules in force. From the
embedded fleet through HTTP to what `entrepot policy shadow` prints and Prometheus reads."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import httpx
import pytest

from dispatcher.cli.main import run as cli
from dispatcher.core.policy import Policy
from dispatcher.core.seal import Seal, Trust
from dispatcher.core.work import Stage
from dispatcher.store.documents import decode_workbook
from dispatcher.web.api import build_api
from residency.bundle import Settings
from residency.vocabulary import Mode
from tests.builders import START
from tests.loops.bench import Bench
from tests.loops.jobs import gang
from tests.loops.lawful import RULE, forbidden, law, permitted, reader
from tests.loops.test_shadow import Offer, beside, placed, trial
from tests.unit.api_world import Vitals, api_of, served


@pytest.fixture
async def api(bench: Bench) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(api_of(bench.state, bench.store, Vitals()))
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
        yield client


# --- /v1/work ----------------------------------------------------------------------------------------------------


async def test_work_is_all_that_waits_and_runs_with_the_policy_and_what_cannot_be_read(
    api: httpx.AsyncClient, bench: Bench
) -> None:
    await placed(bench)
    bench.fleet.submit(gang("stuck", pods=64, says={"datasets": "radar-2026"}))
    bench.fleet.submit(gang("odd", says={"datasets": "no-such-set"}))
    bench.fleet.submit(reader("brief", duration="3s"))
    await bench.until(bench.finished("brief"))
    answer = await api.get("/v1/work")
    assert answer.headers["content-type"] == "application/json"
    book = decode_workbook(answer.content)
    assert {one.request.job_name: (one.stage, [str(name) for name, _ in one.places]) for one in book.work} == {
        "job": (Stage.RUNNING, ["onprem-eu"]),
        "stuck": (Stage.QUEUED, []),
    }
    assert [key.startswith("autonomy/job-odd-") for key in book.unread] == [True]
    assert (book.taken_at, book.policy.residency.digest) == (bench.clock.now(), permitted().residency.digest)
    assert (await api.get("/v1/work")).content == answer.content, "the same work, the same bytes"


async def test_work_on_a_hub_that_has_none_is_none(api: httpx.AsyncClient) -> None:
    body = (await api.get("/v1/work")).json()
    assert (body["book"]["work"], body["book"]["unread"]) == ([], [])
    assert body["policy_digest"] == body["book"]["policy"]["digest"]


# --- /v1/shadow --------------------------------------------------------------------------------------------------


async def shadowed(bench: Bench, *offers: Offer, live: Policy | None = None) -> None:
    """A job that runs, and looks of a shadow loop: one for each offer, then one more."""
    await placed(bench)
    bench.state.policy = live or bench.state.policy
    loop, _ = beside(bench, *offers)
    for _ in range(len(offers) + 1):
        await loop.look()


async def test_shadow_tells_what_the_candidate_would_do_and_why(api: httpx.AsyncClient, bench: Bench) -> None:
    await shadowed(bench, forbidden())
    body = (await api.get("/v1/shadow")).json()
    assert (body["live"], body["candidate"]) == (permitted().residency.digest, forbidden().residency.digest)
    assert (body["errors"], body["failures"], body["looked_at"]) == ([], 0, 1)
    (item,) = body["items"]
    assert item["workload"] == bench.workload("job").key
    assert (item["stage"], item["effects"], item["trials"]) == ("running", ["newly-denied-running", "narrowed"], [])
    assert (len(item["legal_before"]), item["legal_after"]) == (4, [])
    assert any(RULE in reason and "destination.country in JP" in reason for reason in item["reasons"])


async def test_shadow_tells_of_live_rules_on_trial_without_any_candidate(api: httpx.AsyncClient, bench: Bench) -> None:
    await shadowed(bench, live=trial(Mode.WARN))
    body = (await api.get("/v1/shadow")).json()
    assert body["candidate"] is None
    ((one,),) = [item["trials"] for item in body["items"]]
    assert (one["rule"], one["mode"]) == ("on-trial", "warn")
    assert body["items"][0]["effects"] == []


async def test_shadow_says_why_a_candidate_is_not_used_and_goes_on_with_the_last(
    api: httpx.AsyncClient, bench: Bench
) -> None:
    await shadowed(bench, forbidden(), ("residency/a.yaml:1:1: error: broken",))
    body = (await api.get("/v1/shadow")).json()
    assert body["errors"] == ["residency/a.yaml:1:1: error: broken"]
    assert (body["candidate"], len(body["items"])) == (forbidden().residency.digest, 1)


@pytest.mark.parametrize(
    ("offers", "live", "said", "unsaid"),
    [
        ((), None, ("no candidate beside them: serve --shadow-policy DIR", "no difference over"), "beside them since"),
        (
            (forbidden(),),
            None,
            ("beside them since", "running", "newly-denied-running, narrowed", "4 -> 0", RULE),
            "no difference",
        ),
        ((), trial(Mode.SHADOW), ("would have denied", "on-trial (shadow)"), "newly-denied"),
        (
            (("a.yaml:1:1: error: broken",),),
            None,
            ("has never been valid", "not used: a.yaml:1:1: error: broken"),
            "--shadow-policy",
        ),
        ((permitted(),), None, ("beside them since", "no difference over 1 workloads"), "->"),
    ],
    ids=[
        "nothing beside the live rules",
        "a candidate that denies what runs",
        "a live rule in shadow",
        "a candidate that was never valid",
        "a candidate that says the same",
    ],
)
async def test_the_page_of_the_shadow(
    bench: Bench,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    offers: tuple[Offer, ...],
    live: Policy | None,
    said: tuple[str, ...],
    unsaid: str,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    await shadowed(bench, *offers, live=live)
    with served(build_api(bench.state, bench.store, Vitals())) as url:
        capsys.readouterr()
        assert cli(["policy", "shadow", "--server", url, "-o", "wide"]) == 0
        text = capsys.readouterr().out
        assert cli(["policy", "shadow", "--server", url, "-o", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["looked_at"] == 1
    for words in said:
        assert words in text
    assert unsaid not in text


async def test_prometheus_reads_what_the_shadow_counts(bench: Bench) -> None:
    await shadowed(bench, forbidden(), ("broken",))
    lines = bench.metrics.text().decode().splitlines()
    assert f'entrepot_shadow_differences_total{{rule="{RULE}",would="newly-denied-running"}} 1.0' in lines
    assert 'entrepot_shadow_open{would="newly-denied-running"} 1.0' in lines
    assert 'entrepot_shadow_open{would="widened"} 0.0' in lines
    assert "entrepot_shadow_refused 1.0" in lines
    assert "entrepot_shadow_failures_total 0.0" in lines


async def test_what_differs_no_more_is_open_no_more_and_stays_counted(bench: Bench) -> None:
    await shadowed(bench, forbidden(), permitted())
    lines = bench.metrics.text().decode().splitlines()
    assert 'entrepot_shadow_open{would="newly-denied-running"} 0.0' in lines
    assert f'entrepot_shadow_differences_total{{rule="{RULE}",would="newly-denied-running"}} 1.0' in lines
    assert "entrepot_shadow_refused 0.0" in lines


# --- the rules in force --------------------------------------------------------------------------------------------


SIGNED = Seal(Trust.SIGNED, serial=7, tree="t7", author="ann", approvers=("bob",), key="K", confirmed_at=START)


@pytest.mark.parametrize(
    ("seal", "expected"),
    [
        (Seal(), ("unsigned", None, None, "unsigned")),
        (SIGNED, ("signed", 7, None, "ann, approved by bob")),
        (
            replace(SIGNED, confirmed_at=START - timedelta(days=8)),
            ("signed", 7, "rules-too-old", "ann, approved by bob"),
        ),
        (replace(SIGNED, valid_until=START), ("signed", 7, "rules-expired", "ann, approved by bob")),
        (Seal(Trust.MISSING), ("missing", None, "rules-missing", "unsigned")),
        (Seal(not_before=START + timedelta(hours=1)), ("unsigned", None, "clock-wrong", "unsigned")),
    ],
    ids=["unsigned", "signed", "older than their max_age", "expired", "no rules at all", "a clock that went back"],
)
async def test_the_rules_in_force_are_shown_with_whose_they_are_and_what_is_wrong(
    api: httpx.AsyncClient, bench: Bench, seal: Seal, expected: tuple[object, ...]
) -> None:
    bench.state.policy = replace(law(*permitted().residency.rules, settings=Settings(max_age_s=7 * 86400)), seal=seal)
    shown = (await api.get("/v1/blueprint")).json()["law"]
    assert (shown["trust"], shown["serial"], shown["trouble"], shown["actor"]) == expected
    assert shown["digest"] == bench.state.policy.residency.digest
    assert bool(shown["text"])
