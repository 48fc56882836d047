"""Advice on checkpoints reaches the people whom it saves money: through the API's answer and on the terminal."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console

from dispatcher.cli.show_why import decision_page
from dispatcher.core.policy import Purchase
from dispatcher.core.workload import Destination
from dispatcher.web.decisions import full
from tests.core_builders import GB, USD, compute, decided, egress, flavor_policy, policy, request, site, store, worker


def spot(checkpoint: bool):  # type: ignore[no-untyped-def]
    flavors = [flavor_policy(purchase=Purchase.SPOT)]
    price = replace(compute("onprem", 3 * USD, purchase=Purchase.SPOT), interruption_s=72_000)
    stores = [store("saves", region="r-saves")]
    rules = policy([site("onprem", flavors=flavors)], [price], [egress("r-onprem", "r-saves", 0, 8_000)], stores=stores)
    said = Destination(stores[0].name, "x") if checkpoint else None
    wanted = request(checkpoint=said, checkpoint_bytes=60 * GB, checkpoint_interval_s=3600)
    return full(decided(wanted, worker(), rules=rules))


def shown(view) -> str:  # type: ignore[no-untyped-def]
    out = Console(width=200, record=True, file=StringIO())
    decision_page(view, out, False)
    return out.export_text()


def test_a_run_on_spot_is_told_how_often_to_checkpoint() -> None:
    view = spot(checkpoint=True)
    (advice,) = [term.advice for term in view.candidates[0].terms if term.advice is not None]
    assert (advice.interval_s, advice.write_s, advice.mean_time_s, advice.used_s) == (2879, 60, 72_000, 3600)
    assert advice.text in " ".join(shown(view).split())


def test_a_run_without_checkpoints_is_advised_nothing_and_pays_for_half_of_itself() -> None:
    view = spot(checkpoint=False)
    assert all(term.advice is None for term in view.candidates[0].terms)
    assert "INTERRUPTION" in shown(view)
    assert "ENERGY" not in shown(view), "what is nothing everywhere takes no column"
