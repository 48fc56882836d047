"""What a shape costs on a cluster, and what the law says of it there: kept while nothing that these read has changed.

Room comes and goes with everything that starts or ends; prices, routes and rules do not. So where a cluster has to be
weighed again since it has another amount free, and the same fits in the same way, only the room is judged anew.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from dispatcher.core.decision import Term
from dispatcher.core.ids import ClusterName
from dispatcher.core.legality import Legality


class Appraisal(NamedTuple):
    """`held_s`: for how long it is held there before it works."""

    terms: tuple[Term, ...]
    law: Legality
    held_s: int


@dataclass(slots=True)
class Appraisals:
    """Those of one shape, by one policy, in one window of time (core/window.py)."""

    _known: dict[ClusterName, tuple[Hashable, Appraisal]] = field(default_factory=dict)

    def of(self, cluster: ClusterName, read: Hashable, make: Callable[[], Appraisal]) -> Appraisal:
        """The appraisal of what was read of a cluster: all, beside the shape, that terms and law may depend on."""
        known = self._known.get(cluster)
        if known is None or known[0] != read:
            known = self._known[cluster] = (read, make())
        return known[1]
