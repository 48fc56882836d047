"""What a run used of the grid, as it ran: integers, and unknown where nobody has declared it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from dispatcher.core.energy import Drawn, EndedRun, Given, drawn_by
from dispatcher.core.explain_energy import run_text
from dispatcher.core.ids import ClusterName, FlavorName, QueueName, WorkloadUid
from dispatcher.core.policy import ClusterPolicy
from dispatcher.core.workload import HubWorkload, PodSet
from tests.core_builders import NOW, flavor_policy, pods, res, site

ONPREM = ClusterName("onprem")
CPU_FLAVOR = FlavorName("cpu")


def declared(watts: int | None = 700, permille: int | None = 1200, grams: int | None = 300) -> ClusterPolicy:
    """GPUs of 700 W and cores of 10 W, at a site that draws a fifth more, on a grid of 300 g a kWh."""
    flavors = [
        replace(flavor_policy(), watts=watts),
        replace(flavor_policy("cpu", product=None), watts=10),
    ]
    return replace(site("onprem", flavors=flavors), energy_permille=permille, grid_g_per_kwh=grams)


def workload(*pod_sets: PodSet) -> HubWorkload:
    return HubWorkload(
        WorkloadUid("u"), "team", "train", "1", NOW, "main", cluster_queue=QueueName("q"), pod_sets=pod_sets
    )


GPUS = pods(2, 8)
CORES = pods(3, 0, name="cores", per_pod=res(0, cpu=4))
BOTH = {"main": FlavorName("h100"), "cores": CPU_FLAVOR}


@pytest.mark.parametrize(
    ("pod_sets", "flavors", "known", "draw_mw"),
    [
        ((GPUS,), BOTH, declared(), 16 * 700 * 1200),
        ((GPUS, CORES), BOTH, declared(), (16 * 700 + 12 * 10) * 1200),
        ((GPUS, CORES), {**BOTH, "cores": FlavorName("h100")}, declared(), 16 * 700 * 1200),
        ((GPUS,), BOTH, declared(watts=None), None),
        ((GPUS,), BOTH, declared(permille=None), None),
        ((GPUS,), {}, declared(), None),
        ((GPUS,), {"main": FlavorName("b200")}, declared(), None),
        ((GPUS,), BOTH, None, None),
        ((), {}, declared(), 0),
    ],
    ids=[
        "GPUs with the site's overhead",
        "pods on cores draw as well",
        "what runs beside GPUs draws from their nodes' share",
        "watts are not declared",
        "the site's factor is not declared",
        "on which flavor it ran is not known",
        "the flavor is not in the blueprint",
        "the cluster is not in the blueprint",
        "nothing draws nothing",
    ],
)
def test_what_a_run_draws(
    pod_sets: tuple[PodSet, ...], flavors: Mapping[str, FlavorName], known: ClusterPolicy | None, draw_mw: int | None
) -> None:
    given = {each.name: Given(flavors[each.name], each.count) for each in pod_sets if each.name in flavors}
    assert drawn_by(workload(*pod_sets), ONPREM, given, known).draw_mw == draw_mw


def test_pods_that_were_not_admitted_draw_nothing() -> None:
    given = {"main": Given(FlavorName("h100"), 1)}
    assert drawn_by(workload(GPUS), ONPREM, given, declared()).draw_mw == 8 * 700 * 1200


def ran(seconds: float, draw_mw: int | None = 13_440_000, grid: int | None = 300) -> EndedRun:
    drawn = Drawn("team/train", ONPREM, draw_mw, grid)
    return EndedRun(WorkloadUid("u"), NOW, NOW + timedelta(seconds=seconds), 16, drawn)


@pytest.mark.parametrize(
    ("run", "watt_hours", "grams", "text"),
    [
        (ran(3600), 13_440, 4_032, "1 h on onprem, 16 GPUs: 13.440 kWh, 4.032 kg CO2"),
        (ran(90), 336, 101, "90 s on onprem, 16 GPUs: 0.336 kWh, 0.101 kg CO2"),
        (ran(0), 0, 0, "0 s on onprem, 16 GPUs: 0.000 kWh, 0.000 kg CO2"),
        (ran(3600, grid=None), 13_440, None, "16 GPUs: 13.440 kWh, CO2 not known (fleet.yaml: carbon_g_per_kwh)"),
        (ran(3600, draw_mw=None), None, None, "16 GPUs: energy not known (fleet.yaml: energy_factor, watts)"),
        (replace(ran(3600), ended_at=NOW - timedelta(seconds=1)), 0, 0, "0.000 kWh"),
    ],
)
def test_what_a_run_used(run: EndedRun, watt_hours: int | None, grams: int | None, text: str) -> None:
    assert (run.watt_hours, run.co2_grams) == (watt_hours, grams)
    assert text in run_text(run)
