"""What runs used of the grid, as they ran: declared watts, times the site's factor, times the time that it took.

The term of a decision (terms/energy.py) says what a run is expected to draw. This is what it drew, by the same
declarations and the flavors that its worker gave it. Unknown is unknown: watts that nobody declares are not zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from dispatcher.core.ids import ClusterName, FlavorName, WorkloadUid
from dispatcher.core.policy import ClusterPolicy
from dispatcher.core.prices import div_half_up
from dispatcher.core.workload import HubWorkload

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a run draws all the while. `draw_mw` is in milliwatts with the site's overhead (PUE), `grid_g_per_kwh` the
    CO2 of its grid; None: not declared.

    `guessed`: by the flavors of a decision, or by a blueprint that does not name the cluster. What is on record already
    is the better word.
    """

    key: str
    cluster: ClusterName
    draw_mw: int | None
    grid_g_per_kwh: int | None
    guessed: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run of a workload from its admission to its end, whatever ended it, with the accelerators that it held."""

    workload: WorkloadUid
    begun_at: datetime
    ended_at: datetime
    gpus: int
    drawn: Drawn

    @property
    def watt_hours(self) -> int | None:
        """What it used, the site's overhead included; None: not known."""
        draw = self.drawn.draw_mw
        return None if draw is None else div_half_up(draw * self._lasted_ms, 1000 * HOUR_MS)

    @property
    def co2_grams(self) -> int | None:
        draw, grid = self.drawn.draw_mw, self.drawn.grid_g_per_kwh
        if draw is None or grid is None:
            return None
        return div_half_up(draw * self._lasted_ms * grid, 1000 * HOUR_MS * 1000)

    @property
    def lasted_s(self) -> int:
        return self._lasted_ms // 1000

    @property
    def _lasted_ms(self) -> int:
        return max(0, (self.ended_at - self.begun_at) // timedelta(milliseconds=1))


class Given(NamedTuple):
    """What a pod set has where it runs: its flavor, and how many pods. Those are fewer than the job asks for where it
    lets itself be admitted in part."""

    flavor: FlavorName
    pods: int


def drawn_by(
    workload: HubWorkload, cluster: ClusterName, given: Mapping[str, Given], site: ClusterPolicy | None
) -> Drawn:
    """What a workload draws by what its pod sets have. As in the term, what runs beside GPUs draws from their nodes'
    share."""
    grid = site.grid_g_per_kwh if site is not None else None
    return Drawn(workload.key, cluster, _draw_mw(workload, given, site), grid)


def _draw_mw(workload: HubWorkload, given: Mapping[str, Given], site: ClusterPolicy | None) -> int | None:
    if site is None or site.energy_permille is None:
        return None
    total = 0
    for pod_set in workload.pod_sets:
        has = given.get(pod_set.name)
        flavor = site.flavors.get(has.flavor) if has is not None else None
        if has is None or flavor is None:
            return None
        if flavor.product is not None and not pod_set.per_pod.gpus():
            continue
        if flavor.watts is None:
            return None
        total += has.pods * pod_set.per_pod.billed_milli() * flavor.watts
    return div_half_up(total * site.energy_permille, 1000)
