"""A way on which a data set comes to a candidate, with its bill; and what is waited for. Which way is taken,
`terms/routes.py` says, and what comes, `terms/arriving.py`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dispatcher.core.decision import Line
from dispatcher.core.instants import stamp
from dispatcher.core.policy import DataSet, EgressPrice, RequestPrice
from dispatcher.core.prices import Site, mean_price, request_amount, requests_of, transfer_amount, transfer_time_s
from dispatcher.core.snapshot import Cached


@dataclass(frozen=True, slots=True)
class Route:
    """The cheapest way of one data set to a candidate.

    `reads` is how often its bytes go that way: each read pays again (FR-SCO-15), but for a cluster whose cache can
    hold it. `price` None: it is there, or in the same region for nothing. `requests` None: nobody bills them.
    `cached` is set where somebody else's work brings it into the cache, or has: then `brought_s` is how long it would
    take this run to bring it itself. `is_local`: the cluster is declared to hold it.
    """

    data_set: DataSet
    reads: int
    source: str
    site: Site
    price: EgressPrice | None
    requests: RequestPrice | None = None
    cached: Cached | None = None
    brought_s: int | None = None
    is_local: bool = False

    @property
    def moved_bytes(self) -> int:
        """All that goes that way."""
        return (self.data_set.size_bytes or 0) * self.reads

    @property
    def egress_usd_micro(self) -> int:
        return transfer_amount(self.price, self.data_set.size_bytes or 0, self.reads) if self.price else 0

    @property
    def request_count(self) -> int:
        found, data_set = self.requests, self.data_set
        return requests_of(found, data_set.size_bytes or 0, data_set.objects) * self.reads if found else 0

    @property
    def requests_usd_micro(self) -> int:
        if self.requests is None:
            return 0
        return request_amount(self.requests.usd_micro_per_million_reads, self.request_count)

    @property
    def amount_usd_micro(self) -> int:
        return self.egress_usd_micro + self.requests_usd_micro

    @property
    def time_s(self) -> int | None:
        """Until the data is there, from when the way begins."""
        if self.cached is not None:
            return 0 if self.cached.there else _seconds(self.cached)
        return transfer_time_s(self.price, self.data_set.size_bytes or 0, self.reads) if self.price else 0

    @property
    def alone_s(self) -> int | None:
        """How long it takes this run to bring it into the cache, where nobody else does; None = not known. What comes
        from a store of the region comes as the run reads it, and nobody knows how fast."""
        if self.cached is not None:
            return self.brought_s
        return self.time_s if self.price is not None else None

    @property
    def needs_size(self) -> bool:
        """Whether its cost cannot be known without the size of the data set."""
        return self.price is not None or (self.requests is not None and self.data_set.objects is None)

    def lines(self) -> Iterator[Line]:
        name = self.data_set.name
        if self.cached is not None and self.cached.there:
            yield Line(f"{name}, in the cache since {stamp(self.cached.there_at)}", 0, "byte", 0, 0)
        elif self.cached is not None:
            until = stamp(self.cached.there_at)
            yield Line(f"{name}, on its way for {self.source} until {until}", 0, "byte", 0, 0)
        elif self.price is None:
            yield Line(f"{name}, already in {self.source}", 0, "byte", 0, 0)
        else:
            via = f", {self.price.via}" if self.price.via else ""
            yield Line(
                what=f"{name} from {self.source} ({self.site[1]}{via}) x {self.reads}",
                quantity=self.moved_bytes,
                unit="byte",
                unit_price_usd_micro=mean_price(self.price, self.moved_bytes),
                amount_usd_micro=self.egress_usd_micro,
                source=self.price.source,
            )
        if self.requests is not None:
            yield Line(
                what=f"reads of {name} at {self.source}",
                quantity=self.request_count,
                unit="request",
                unit_price_usd_micro=self.requests.usd_micro_per_million_reads,
                amount_usd_micro=self.requests_usd_micro,
                source=self.requests.source,
            )


@dataclass(frozen=True, slots=True)
class Arrival:
    """Something that comes before the work begins. `price` None: others bring it. `mbit_s` is what its way carries;
    where that is not known, what the slowest of the known ways does (`guessed`). `seconds` None: nobody can say."""

    what: str
    seconds: int | None
    price: EgressPrice | None = None
    mbit_s: int | None = None
    guessed: bool = False


def _seconds(coming: Cached) -> int:
    return max(0, int((coming.there_at - coming.began_at).total_seconds()))
