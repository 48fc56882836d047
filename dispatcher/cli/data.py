"""`entrepot data`: the data sets, where they lie, and whether that was seen."""

from __future__ import annotations

from functools import partial

from rich.console import Console
from rich.text import Text

from dispatcher.cli.client import Client
from dispatcher.cli.options import DEFAULT_SERVER, Output, OutputOption, ServerOption
from dispatcher.cli.printing import emit, grid
from dispatcher.core.policy import CatalogStanding
from dispatcher.core.replicas import Presence
from dispatcher.web.data import DataSetList, DataSetView, ReplicaView
from dispatcher.web.status import span

_STYLES = {Presence.CONFIRMED: "green", Presence.MISSING: "red", Presence.UNKNOWN: "yellow"}
_UNITS = ((10**15, "PB"), (10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def data(output: OutputOption = Output.TABLE, server: ServerOption = DEFAULT_SERVER) -> None:
    """Which data sets there are, where they lie, and whether somebody looked."""
    with Client(server) as client:
        view, raw = client.get(DataSetList, "/v1/data")
    emit(view, raw, output, partial(data_page, view))


def data_page(view: DataSetList, out: Console, wide: bool) -> None:
    """One row a replica. `wide` adds what a data set was made from."""
    if (said := _catalog(view)) is not None:
        out.print(said)
    if not view.items:
        out.print("no data sets")
        return
    more = ("MADE FROM",) if wide else ()
    table = grid("DATA SET", "SIZE", "LABELS", "FROM", *more, "LIES IN", "SEEN", flexible="SEEN")
    for one in view.items:
        lead = [Text(one.name), Text(size_text(one.size_bytes)), Text(", ".join(one.labels)), _origin(one)]
        lead += [Text(", ".join(one.derived_from))] if wide else []
        for replica in one.replicas or (None,):
            where = Text(replica.place) if replica is not None else Text("nowhere", style="red")
            table.add_row(*lead, where, _seen(replica) if replica is not None else Text(""))
            lead = [Text("")] * len(lead)
    out.print(table)


def _catalog(view: DataSetList) -> Text | None:
    found = view.catalog
    if found is None:
        return None
    if found.standing is CatalogStanding.UNREAD:
        text = f"catalog {found.where}: not read yet; its data sets are not known"
    else:
        old = "; too old, nothing starts on its data sets" if found.standing is CatalogStanding.OLD else ""
        text = f"catalog {found.where}: {span(found.age_s) if found.age_s is not None else '?'} old{old}"
    trouble = f" ({found.trouble[0]}{'; ...' if len(found.trouble) > 1 else ''})" if found.trouble else ""
    fine = found.standing is CatalogStanding.READ and not trouble
    return Text(text + trouble, style="dim" if fine else "yellow")


def _origin(one: DataSetView) -> Text:
    return Text(one.origin.value) if one.known else Text(f"{one.origin.value}, too old", style="red")


def _seen(replica: ReplicaView) -> Text:
    if replica.presence is None:
        return Text("declared", style="dim")
    age = f" {span(replica.age_s)} ago" if replica.age_s is not None else ""
    detail = replica.why
    if replica.objects and replica.size_bytes is not None:
        at_least = "at least " if replica.more else ""
        detail = f"{at_least}{replica.objects} objects, {size_text(replica.size_bytes)}"
    return Text(f"{replica.presence.value}{age}{f': {detail}' if detail else ''}", style=_STYLES[replica.presence])


def size_text(size: int | None) -> str:
    """Bytes for people, by powers of ten as data.yaml writes them; `?` = not known."""
    if size is None:
        return "?"
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size} B"
