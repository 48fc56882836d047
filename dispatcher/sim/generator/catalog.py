"""The data of a scenario: sets of each label in the regions where it may be at home, and who reads which of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dispatcher.core.workload import WorkloadClass
from dispatcher.sim.generator.draws import UNIT, Draws
from dispatcher.sim.generator.fleet import FleetShape
from dispatcher.sim.generator.published import DATA_SET_MEDIAN_GB, DATA_SET_SIGMA_PERMILLE
from dispatcher.sim.generator.quantiles import Quantiles
from dispatcher.sim.jobs import Reading, Recipe, SimDataSet

MB = 10**6
_EU = ("de-stuttgart", "fi-helsinki", "fr-paris")


@dataclass(frozen=True, slots=True)
class LabelShare:
    """So many of a thousand jobs read data of this label, which lies in these regions (empty = in any)."""

    label: str
    permille: int
    regions: tuple[str, ...] = ()

    def text(self) -> str:
        """As a report prints it."""
        where = f" ({', '.join(self.regions)})" if self.regions else ""
        return f"{self.label or 'no label'} {self.permille}{where}"


LABELS: tuple[LabelShare, ...] = (
    LabelShare("internal", 700),
    LabelShare("personal-eu", 150, _EU),
    LabelShare("customer-acme", 100, ("de-stuttgart",)),
    LabelShare("export-controlled", 50, ("de-stuttgart",)),
)
"""Anywhere 70 %, in the EU 15 %, at a customer's site 10 %, under export control 5 %, in the labels and regions of the
example blueprint. Our own assumption, no trace tells it."""

READERS: tuple[tuple[WorkloadClass, int], ...] = (
    (WorkloadClass.TRAINING, 1000),
    (WorkloadClass.DATA_PROCESSING, 1000),
    (WorkloadClass.SIMULATION, 500),
    (WorkloadClass.EVALUATION, 500),
    (WorkloadClass.REINFORCEMENT_LEARNING, 300),
)
"""So many of a thousand jobs of a class read a data set; those of other classes read none."""


@dataclass(frozen=True, slots=True)
class DataMix:
    """How data is drawn. `sets_per_region` of each label are scaled by its share, at least one.

    Sizes are stratified, so that every catalog, however small, follows the distribution. Which set of a region a job
    reads falls with its rank (1, 1/2, 1/3 ...). `away_permille` of the jobs with the first label read a set that lies
    elsewhere than at their home.
    """

    labels: tuple[LabelShare, ...] = LABELS
    sets_per_region: int = 12
    median_mb: int = DATA_SET_MEDIAN_GB * 1000
    sigma_permille: int = DATA_SET_SIGMA_PERMILLE
    most_mb: int = 20_000_000
    epochs: tuple[tuple[int, int], ...] = ((1, 7), (2, 2), (3, 1))
    away_permille: int = 100
    readers: tuple[tuple[WorkloadClass, int], ...] = READERS

    def known(self, fleet: FleetShape) -> tuple[LabelShare, ...]:
        """The labels that the blueprint declares and whose regions it has; the share of others goes to the first."""
        fits = [
            LabelShare(share.label, share.permille, tuple(r for r in share.regions if r in fleet.regions))
            for share in self.labels
            if share.label in fleet.labels and (not share.regions or set(share.regions) & set(fleet.regions))
        ]
        if not fits:
            return (LabelShare("", 1000),)
        rest = sum(share.permille for share in self.labels) - sum(share.permille for share in fits)
        first = LabelShare(fits[0].label, fits[0].permille + rest, fits[0].regions)
        return (first, *fits[1:])

    def recipe(self, fleet: FleetShape) -> Recipe:
        labels = ", ".join(
            f"{share.label or 'no label'} {share.permille}"
            + (f" ({', '.join(share.regions)})" if share.regions else "")
            for share in self.known(fleet)
        )
        readers = ", ".join(f"{workload_class} {permille}" for workload_class, permille in self.readers)
        epochs = ", ".join(f"{count}: {weight}" for count, weight in self.epochs)
        return (
            (
                "data sets",
                f"{self.sets_per_region} a region and label by its share; lognormal(median {self.median_mb} MB, sigma "
                f"{self.sigma_permille / 1000:g}), stratified, at most {self.most_mb} MB; popularity 1/rank",
            ),
            ("labels", f"permille of jobs: {labels}"),
            ("reading", f"permille of jobs by class: {readers}; epochs of training by weight {epochs}, else 1"),
            ("away from home", f"{self.away_permille} permille of jobs with the first label"),
        )


class Catalog:
    """All data sets of a scenario, and the drawing of what a job reads."""

    def __init__(self, mix: DataMix, fleet: FleetShape, seed: int) -> None:
        self._mix = mix
        self._shares = tuple((share, share.permille) for share in mix.known(fleet))
        self._readers: Mapping[WorkloadClass, int] = dict(mix.readers)
        self._places: dict[tuple[str, str], tuple[tuple[str, int], ...]] = {}
        names: list[tuple[str, str, str]] = []
        whole = sum(permille for _, permille in self._shares)
        for share, permille in self._shares:
            count = max(1, mix.sets_per_region * permille // whole)
            for region in share.regions or fleet.regions:
                own = [f"{share.label or 'data'}-{region}-{number + 1}" for number in range(count)]
                self._places[share.label, region] = tuple((name, 1000 // (at + 1)) for at, name in enumerate(own))
                names += [(name, share.label, region) for name in own]
        sizes = _stratified(names, mix, seed)
        self.data_sets = tuple(
            SimDataSet(name, sizes[name], (label,) if label else (), (region,)) for name, label, region in sorted(names)
        )

    def reading(
        self, workload_class: WorkloadClass, homes: tuple[tuple[str, int], ...], draws: Draws
    ) -> tuple[str, tuple[Reading, ...]]:
        """(home region, what it reads) of a job.

        The label comes first, since some are at home in few regions; a job is at home where its data may be.
        """
        share = draws.weighted(self._shares)
        reads = draws.chance(self._readers.get(workload_class, 0))
        allowed = share.regions if reads else ()
        home = draws.weighted([(region, weight) for region, weight in homes if not allowed or region in allowed])
        away = draws.chance(self._mix.away_permille)
        if not reads:
            return home, ()
        others = [(other, weight) for other, weight in homes if other != home and (share.label, other) in self._places]
        region = draws.weighted(others) if away and others and share is self._shares[0][0] else home
        name = draws.weighted(self._places[share.label, region])
        epochs = draws.weighted(self._mix.epochs) if workload_class is WorkloadClass.TRAINING else 1
        return home, (Reading(name, epochs),)


def _stratified(names: list[tuple[str, str, str]], mix: DataMix, seed: int) -> dict[str, int]:
    """A size for each set: one of each of as many equal parts of the distribution, in an order that the seed draws."""
    table = Quantiles.lognormal(mix.median_mb, mix.sigma_permille).between(1, mix.most_mb)
    draws = {name: Draws(seed, "data-set", name) for name, _, _ in names}
    order = sorted((draws[name].even(), name) for name, _, _ in names)
    return {
        name: MB * table.at((rank * UNIT + draws[name].even()) // len(order)) for rank, (_, name) in enumerate(order)
    }
