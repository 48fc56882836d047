"""Decisions on data of which the catalog has said nothing for too long, and their records."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from dispatcher.core.decide import decide
from dispatcher.core.decision import Decision, Outcome, Reason
from dispatcher.core.explain import why_not_text
from dispatcher.core.ids import ClusterName, DataSetName
from dispatcher.core.plain import plain_codec
from dispatcher.core.policy import Catalog, CatalogSource, CatalogStanding, Credentials, Policy
from dispatcher.core.replay import Inputs, replay
from tests.core_builders import NOW, data, decided, detail_of, policy, reasons, request, snapshot, uses, worker

SOURCE = CatalogSource("https://data.example/sets", 60, 3600, Credentials("ns", "name", "token"))
READ_AT = NOW - timedelta(hours=2)
RADAR = DataSetName("radar")


def rules(standing: CatalogStanding) -> Policy:
    old = standing is CatalogStanding.OLD
    catalog = Catalog(SOURCE, standing, (RADAR,), (RADAR,) if old else (), READ_AT if old else None)
    sets = [data("radar", clusters=["onprem"]), data("own", clusters=["onprem"])]
    return replace(policy(data_sets=sets), catalog=catalog)


def reading(name: str, by: Policy) -> Decision:
    return decided(request(data=uses(name)), worker(), rules=by)


def test_nothing_starts_on_data_that_is_no_longer_known_wherever_it_lies() -> None:
    decision = reading("radar", rules(CatalogStanding.OLD))
    assert decision.outcome is Outcome.WAIT
    assert reasons(decision, "onprem") == [Reason.CATALOG_OLD]
    detail = detail_of(decision, "onprem", Reason.CATALOG_OLD)
    assert (detail.subject, detail.since, detail.expected) == ("radar", READ_AT, ("at most 3600 s",))
    said = why_not_text(decision, ClusterName("onprem"))
    assert "would read radar, of which nothing is known any more: its catalog last answered at" in said


def test_data_sets_of_the_files_go_on_while_the_catalog_is_old() -> None:
    assert reading("own", rules(CatalogStanding.OLD)).chosen == "onprem"


def test_a_catalog_that_was_read_is_in_nobodys_way() -> None:
    assert reading("radar", rules(CatalogStanding.READ)).chosen == "onprem"


def test_what_the_catalog_said_is_in_the_record_so_that_it_replays() -> None:
    codec = plain_codec(Catalog)
    for standing in CatalogStanding:
        by = rules(standing)
        wanted = request(data=uses("radar"))
        assert by.catalog is not None
        kept = replace(by, catalog=codec.decode(codec.encode(by.catalog)))
        assert kept == by
        assert replay(Inputs(wanted, snapshot(worker()), kept, NOW)) == decide(wanted, snapshot(worker()), by, NOW)
