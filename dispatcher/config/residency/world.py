"""What the author's commands look at: the law of a folder with the fleet and the catalog that it is for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from dispatcher.config.loader import LoadResult, load_blueprint
from dispatcher.core.legality import office_of
from dispatcher.core.policy import Policy
from dispatcher.core.products import product_of
from residency.bundle import Bundle
from residency.facts import Place
from residency.judge import Law
from residency.vocabulary import UNLABELLED


@dataclass(frozen=True, slots=True)
class World:
    """`places`: clusters and stores by name. `labels`: those that are declared. `data`: data sets with all labels that
    bind them. `spell` gives the canonical name of a GPU product (None: unknown)."""

    policy: Policy
    law: Law
    places: Mapping[str, Place]
    labels: tuple[str, ...]
    data: Mapping[str, tuple[str, ...]]
    spell: Callable[[str], str | None]

    @property
    def bundle(self) -> Bundle:
        return self.law.bundle

    @property
    def carried(self) -> frozenset[str]:
        """Labels that some data set or some queue's work carries."""
        found = {label for labels in self.data.values() for label in labels}
        found |= {str(label) for queue in self.policy.queues.values() for label in queue.default_labels}
        return frozenset(found | {UNLABELLED})


def world_of(policy: Policy, now: datetime) -> World:
    office = office_of(policy)
    sites = [cluster.site for cluster in policy.clusters.values()] + [store.site for store in policy.stores.values()]
    return World(
        policy=policy,
        law=office.law,
        places={site.name: site for site in sorted(sites, key=lambda site: site.name)},
        labels=tuple(sorted({str(label) for label in policy.labels} | {UNLABELLED})),
        data={name: office.cargo(name, now).labels.names for name in sorted(str(one) for one in policy.data_sets)},
        spell=lambda text: product_of(text, policy.products),
    )


def look(folder: Path, now: datetime) -> tuple[LoadResult, World | None]:
    """Read a folder; without a world when it is not valid. Never raises for what stands in the files."""
    result = load_blueprint(folder, now)
    return result, world_of(result.policy, now) if result.policy is not None else None
