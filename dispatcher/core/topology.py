"""Topology-aware scheduling, as far as a choice between clusters needs it: levels, domains, and what pods ask of them.

A Topology of Kueue names node labels, its *levels*, from broad to narrow (block, rack, host). A *domain* of a level is
the nodes that share the values of all labels down to it: rack r1 of block b1 is another one than rack r1 of block b2.
Pods that *require* a level all lie in one domain of it, or nowhere. Pods in *slices* of a level lie so many at a time
in one domain of it. Two pod sets of a *group* share a flavor, and the domain that they require. Only nodes with every
label of the levels count (Kueue v0.19, the API types of Workload and Topology, and its flavor assigner).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Slice:
    """Each `size` pods of a pod set, one at least, lie in one domain of `level`."""

    level: str
    size: int


@dataclass(frozen=True, slots=True)
class TopologyWish:
    """What a pod set asks for: `required` is the level of which one domain must hold all its pods.

    Without it, its pods may be spread: it prefers a level, has slices, or asks for topology-aware scheduling and no
    more. `slices` go from broad to narrow, each of a size that divides the one before. `group`: the pod set of the same
    group takes the same flavor, and lies in the same domain where one is required; "" = none.
    """

    required: str | None = None
    preferred: str | None = None
    slices: tuple[Slice, ...] = ()
    group: str = ""

    @property
    def levels(self) -> tuple[str, ...]:
        """Every level that it names, those of slices last: a flavor that lacks one is none for it."""
        whole = self.required or self.preferred
        return (*((whole,) if whole else ()), *(each.level for each in self.slices))


@dataclass(frozen=True, slots=True)
class Domain:
    """What tells one domain from another: the labels that its nodes have in common, broad to narrow.

    `beside` are the narrower labels of the same topology, which a node must carry to count.
    """

    keys: tuple[str, ...]
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sliced:
    """Domains that take pods in multiples of `size`."""

    domain: Domain
    size: int


@dataclass(frozen=True, slots=True)
class Topology:
    """The Topology that a ResourceFlavor names. `levels` are node labels from broad to narrow; empty: they are not
    known, since our account there may not read Topologies, or there is none of this name."""

    name: str
    levels: tuple[str, ...] = ()

    def suits(self, wish: TopologyWish) -> bool:
        """Whether it may have the levels of a wish, slices not above the whole: what is not known cannot be denied."""
        if not self.levels:
            return True
        if any(level not in self.levels for level in wish.levels):
            return False
        of_slices = [self.levels.index(each.level) for each in wish.slices]
        whole = wish.required or wish.preferred
        inside = whole is None or not of_slices or self.levels.index(whole) <= of_slices[0]
        return inside and all(broad < narrow for broad, narrow in pairwise(of_slices))

    def domain(self, level: str) -> Domain:
        """The domains of a level. Where the levels are not known its own label has to do."""
        if level not in self.levels:
            return Domain((level,))
        end = self.levels.index(level) + 1
        return Domain(self.levels[:end], self.levels[end:])

    def sliced(self, wish: TopologyWish) -> tuple[Sliced, ...]:
        """The domains of its slices. Where the levels are not known, each is told by the labels of those around it."""
        found: list[Sliced] = []
        around = (wish.required,) if wish.required is not None else ()
        for each in wish.slices:
            domain = self.domain(each.level)
            if not self.levels:
                around = tuple(dict.fromkeys((*around, each.level)))
                domain = Domain(around)
            found.append(Sliced(domain, each.size))
        return tuple(found)
