"""`blueprint diff`: what hub and workers have against what the blueprint renders."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.text import Text

from dispatcher.cli.errors import CliError, ExitCode
from dispatcher.cli.hub import KubeconfigOption, hub_kubeconfig, hub_not_read
from dispatcher.cli.options import Output, OutputOption
from dispatcher.cli.printing import emit, grid, note

if TYPE_CHECKING:
    from dispatcher.app.diff import ClusterDiff
    from dispatcher.config import LoadResult

Value = str | int | None


class FieldView(BaseModel):
    path: str
    live: Value
    blueprint: Value


class ObjectView(BaseModel):
    kind: str
    namespace: str
    name: str
    standing: str
    fields: tuple[FieldView, ...]


class UnreadView(BaseModel):
    kind: str
    reason: str


class ClusterDiffView(BaseModel):
    name: str
    error: str | None
    unread: tuple[UnreadView, ...]
    differences: tuple[ObjectView, ...]


class FleetDiffView(BaseModel):
    """What `blueprint diff -o json` prints; keys are stable. `same`: everything was reached, and nothing differs."""

    blueprint: str
    digest: str
    same: bool
    clusters: tuple[ClusterDiffView, ...]


def diff(
    kubeconfig: KubeconfigOption = None,
    blueprint: Annotated[
        Path, typer.Option("--blueprint", envvar="ENTREPOT_BLUEPRINT", help="the blueprint's folder", metavar="DIR")
    ] = Path("config"),
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="as if the fleet had only this cluster (may be repeated)", metavar="CLUSTER"),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Compare hub and workers with what the blueprint renders. Changes nothing.

    Exit codes: 0 no difference, 4 a cluster was not reached (and nothing else differs), 8 differences.
    """
    loaded = _loaded(blueprint)
    assert loaded.blueprint is not None
    assert loaded.policy is not None
    # Imported here: only a few commands need the connectors, and `why` must answer at once.
    from dispatcher.app.diff import DiffOptions, diff_fleet
    from dispatcher.core.ids import ClusterName
    from dispatcher.logs import configure
    from dispatcher.runtime import SystemClock

    configure("critical")  # what the client would log is part of the answer here
    options = DiffOptions(hub_kubeconfig(kubeconfig), tuple(ClusterName(name) for name in only) if only else None)
    try:
        found = asyncio.run(diff_fleet(options, loaded.blueprint, loaded.policy, SystemClock(), note))
    except ValueError as error:
        raise CliError(str(error), where="--only", fix="name clusters of fleet.yaml", code=ExitCode.USAGE) from None
    view = _view(str(blueprint), loaded.policy.digest, found)
    emit(view, None, output, partial(_page, view))
    code = ExitCode.OK if view.same else ExitCode.UNREACHABLE
    if any(cluster.differences for cluster in view.clusters):
        code = ExitCode.BLUEPRINT_DIFFERS
    if (hub_error := view.clusters[0].error) is not None:
        raise hub_not_read(hub_error, options.kubeconfig, code)
    raise typer.Exit(code)


def _loaded(folder: Path) -> LoadResult:
    from dispatcher.config import load_blueprint

    if not folder.is_dir():
        fix = "name the folder that holds fleet.yaml, queues.yaml, data.yaml and prices.yaml"
        raise CliError(f"{folder} is not a folder", where="--blueprint", fix=fix, code=ExitCode.USAGE)
    now = datetime.now(UTC)  # noqa: TID251 - the command line is where a command's time comes from
    loaded = load_blueprint(folder, now)
    if loaded.policy is None:
        errors = "\n".join(problem.text() for problem in loaded.errors)
        fix = f"correct the files: entrepot blueprint lint {folder}"
        raise CliError(errors, where=str(folder), fix=fix, code=ExitCode.INVALID_BLUEPRINT)
    return loaded


def _view(folder: str, digest: str, found: tuple[ClusterDiff, ...]) -> FleetDiffView:
    clusters = tuple(
        ClusterDiffView(
            name=cluster.name,
            error=cluster.error,
            unread=tuple(UnreadView(kind=kind, reason=reason) for kind, reason in cluster.unread),
            differences=tuple(
                ObjectView(
                    kind=one.kind,
                    namespace=one.namespace,
                    name=one.name,
                    standing=one.standing,
                    fields=tuple(FieldView(path=f.path, live=f.live, blueprint=f.blueprint) for f in one.fields),
                )
                for one in cluster.differences
            ),
        )
        for cluster in found
    )
    same = all(cluster.error is None and not cluster.differences for cluster in clusters)
    return FleetDiffView(blueprint=folder, digest=digest, same=same, clusters=clusters)


def _page(view: FleetDiffView, out: Console, wide: bool) -> None:
    from dispatcher.app.diff import HUB, NOT_LOOKED_AT

    for cluster in view.clusters:
        if cluster.error is not None and (cluster.name == HUB or cluster.error == NOT_LOOKED_AT):
            continue  # told once, as the error that ends the command
        out.print(Text.assemble((cluster.name, "bold"), "  ", _summary(cluster)))
        for unread in cluster.unread:
            out.print(Text(f"  not compared: {unread.kind}: {unread.reason}", style="yellow"))
        if cluster.differences:
            out.print(_differences(cluster))
    if view.same:
        out.print(Text(f"no difference to {view.blueprint} ({view.digest})", style="green"))


def _summary(cluster: ClusterDiffView) -> Text:
    if cluster.error is not None:
        return Text(f"not reached: {cluster.error}", style="red")
    if not cluster.differences:
        return Text("as in the blueprint", style="green")
    counts = {one.standing: 0 for one in cluster.differences}
    for one in cluster.differences:
        counts[one.standing] += 1
    return Text(", ".join(f"{count} {standing}" for standing, count in sorted(counts.items())), style="yellow")


def _differences(cluster: ClusterDiffView) -> object:
    table = grid("", "object", "field", "live", "blueprint", flexible="field")
    for one in cluster.differences:
        name = f"{one.kind} {one.namespace}/{one.name}" if one.namespace else f"{one.kind} {one.name}"
        if not one.fields:
            table.add_row(one.standing, name, "", "", "")
        for number, field in enumerate(one.fields):
            first = (one.standing, name) if number == 0 else ("", "")
            table.add_row(*first, field.path, _cell(field.live), _cell(field.blueprint))
    return table


def _cell(value: Value) -> str:
    return "-" if value is None else str(value)
