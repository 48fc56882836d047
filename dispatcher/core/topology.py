"""Topology-aware scheduling, as far as a choice between clusters needs it: levels, domains, and what pods ask of them.

A Topology of Kueue names node labels, its *levels*, from broad to narrow (block, rack, host). A *domain* of a level is
the nodes that share the values of all labels down to it: rack r1 of block b1 is another one than rack r1 of block b2.
Pods that *require* a level all lie in one domain of it, or nowhere. Only nodes with every label of the levels count
(Kueue v0.19, the API types of Workload and Topology, and its flavor assigner).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopologyWish:
    """What a pod set asks for: `required` is the level of which one domain must hold all its pods.

    None: it asks for topology-aware scheduling (preferred, unconstrained, or by slices) and lets its pods be spread.
    """

    required: str | None = None


@dataclass(frozen=True, slots=True)
class Domain:
    """What tells one domain from another: the labels that its nodes have in common, broad to narrow.

    `beside` are the narrower labels of the same topology, which a node must carry to count.
    """

    keys: tuple[str, ...]
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Topology:
    """The Topology that a ResourceFlavor names. `levels` are node labels from broad to narrow; empty: they are not
    known, since our account there may not read Topologies, or there is none of this name."""

    name: str
    levels: tuple[str, ...] = ()

    def has(self, level: str) -> bool:
        """Whether it may have this level: what is not known cannot be denied."""
        return not self.levels or level in self.levels

    def domain(self, level: str) -> Domain:
        """The domains of a level. Where the levels are not known its own label has to do."""
        if level not in self.levels:
            return Domain((level,))
        end = self.levels.index(level) + 1
        return Domain(self.levels[:end], self.levels[end:])
