"""The commands that ask: why, why-not, queue, clusters, decisions. None of them changes anything."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from dispatcher.cli.client import Client, Unreachable
from dispatcher.cli.errors import CliError, ExitCode
from dispatcher.cli.options import (
    DEFAULT_SERVER,
    JobArgument,
    JobRef,
    NamespaceOption,
    Output,
    OutputOption,
    ServerOption,
    StoreOption,
    cluster_name,
    instant,
    parse_job,
)
from dispatcher.cli.printing import emit, note
from dispatcher.cli.show_lists import clusters_page, decisions_page, queue_page
from dispatcher.cli.show_why import decision_page, why_not_page, why_page
from dispatcher.core.decision import Outcome
from dispatcher.core.ids import SHORTEST_START
from dispatcher.web.models import (
    ClusterList,
    DecisionList,
    DecisionView,
    StateCode,
    WhyNotView,
    WhyView,
    WorkloadList,
)

if TYPE_CHECKING:
    from dispatcher.cli.records import Records

T = TypeVar("T")
_ID_START = re.compile(rf"[0-9a-f]{{{SHORTEST_START},64}}")
_SHORT_START = re.compile(rf"[0-9a-f]{{1,{SHORTEST_START - 1}}}")
MOST_DECISIONS = 1000
"""How many of a job's decisions are looked through for one that stood at a time."""
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=MOST_DECISIONS, help="at most this many")]
AtOption = Annotated[
    str | None, typer.Option("--at", metavar="TIME", help="by the decision that stood then, from the records")
]
JobOrIdArgument = Annotated[
    str | None,
    typer.Argument(metavar="[JOB|ID]", help="only decisions on this job; or a decision's id (4 letters of it or more)"),
]


def why(
    job: JobArgument,
    namespace: NamespaceOption = None,
    at: AtOption = None,
    output: OutputOption = Output.TABLE,
    server: ServerOption = DEFAULT_SERVER,
    store: StoreOption = None,
) -> None:
    """Why is my job where it is, or nowhere? Why was it, at some time?"""
    ref = parse_job(job, namespace)
    if at is not None:
        _one(_stood_at(ref, instant(at, "--at"), server, store), output, server, store)
        return

    def live(client: Client) -> tuple[WhyView, bytes]:
        return client.get(WhyView, *_job_path("/v1/why", client.resolve(ref)))

    view, raw = _ask(server, store, live, lambda kept: kept.why(ref))
    emit(view, raw, output, partial(why_page, view))


def why_not(
    job: JobArgument,
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="a cluster of the fleet")],
    namespace: NamespaceOption = None,
    output: OutputOption = Output.TABLE,
    server: ServerOption = DEFAULT_SERVER,
    store: StoreOption = None,
) -> None:
    """Why is my job not on this cluster?"""
    ref, name = parse_job(job, namespace), cluster_name(cluster)

    def live(client: Client) -> tuple[WhyNotView, bytes]:
        path, params = _job_path("/v1/why-not", client.resolve(ref))
        return client.get(WhyNotView, f"{path}/{name}", params)

    view, raw = _ask(server, store, live, lambda kept: kept.why_not(ref, name))
    emit(view, raw, output, partial(why_not_page, view))


def queue(
    namespace: Annotated[str | None, typer.Option("-n", "--namespace", help="only this namespace")] = None,
    state: Annotated[StateCode | None, typer.Option("--state", help="only those in this state")] = None,
    limit: LimitOption = 200,
    output: OutputOption = Output.TABLE,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """What waits, why and since when; what runs, and where."""
    params: dict[str, str | int] = {"limit": limit}
    if namespace is not None:
        params["namespace"] = namespace
    if state is not None:
        params["state"] = state.value
    with Client(server) as client:
        view, raw = client.get(WorkloadList, "/v1/workloads", params)
    if not view.items:
        _asked_only(namespace=namespace, state=state)
    emit(view, raw, output, partial(queue_page, view))


def clusters(output: OutputOption = Output.TABLE, server: ServerOption = DEFAULT_SERVER) -> None:
    """The fleet: what each cluster can give, and how well it is seen."""
    with Client(server) as client:
        view, raw = client.get(ClusterList, "/v1/clusters")
    emit(view, raw, output, partial(clusters_page, view))


def decisions(  # noqa: PLR0913 - one parameter an option: that is how typer declares a command line
    job: JobOrIdArgument = None,
    namespace: NamespaceOption = None,
    cluster: Annotated[str | None, typer.Option("--cluster", help="only those that chose it", metavar="NAME")] = None,
    outcome: Annotated[Outcome | None, typer.Option("--outcome", help="only those that came out so")] = None,
    limit: LimitOption = 50,
    output: OutputOption = Output.TABLE,
    server: ServerOption = DEFAULT_SERVER,
    store: StoreOption = None,
) -> None:
    """Recorded decisions, newest first; with an id, that one in full."""
    if job is not None and (cluster is not None or outcome is not None):
        fix = "leave JOB out, or the other two"
        raise CliError("JOB does not go together with --cluster or --outcome", fix=fix, code=ExitCode.USAGE)
    if job is not None and _looks_like_id(job):
        if _one(job, output, server, store):
            return
        with _no_job_either(job):
            _listed(parse_job(job, namespace), (limit, None, None), output, server, store)
        return
    ref = parse_job(job, namespace) if job is not None else None
    wanted = cluster_name(cluster) if cluster is not None else None
    with _no_job_either(job) if job is not None and _SHORT_START.fullmatch(job) else nullcontext():
        _listed(ref, (limit, wanted, outcome), output, server, store)


def _listed(
    ref: JobRef | None, narrowed: tuple[int, str | None, Outcome | None], output: Output, server: str, store: str | None
) -> None:
    limit = narrowed[0]

    def live(client: Client) -> tuple[DecisionList, bytes]:
        if ref is not None:
            path, params = _job_path("/v1/decisions/of", client.resolve(ref))
            return client.get(DecisionList, path, {**params, "limit": limit})
        return client.get(DecisionList, "/v1/decisions", _narrowed(*narrowed))

    view, raw = _ask(server, store, live, lambda kept: kept.decisions(ref, *narrowed))
    if not view.items:
        _asked_only(cluster=narrowed[1], outcome=narrowed[2])
    emit(view, raw, output, partial(decisions_page, view))


def _asked_only(**narrowed: str | None) -> None:
    """Nothing is an answer to a misspelled name too: say what was asked for. Names of old clusters are in records."""
    told = ", ".join(f"{option} {value}" for option, value in narrowed.items() if value is not None)
    if told:
        note(f"only {told} was asked for")


def _stood_at(ref: JobRef, at: datetime, server: str, store: str | None) -> str:
    """The id of the newest decision on a job that was made by then. Raises CliError: there was none yet."""

    def live(client: Client) -> tuple[DecisionList, bytes]:
        path, params = _job_path("/v1/decisions/of", client.resolve(ref))
        return client.get(DecisionList, path, {**params, "limit": MOST_DECISIONS})

    view, _ = _ask(server, store, live, lambda kept: kept.decisions(ref, MOST_DECISIONS, None, None))
    made = next((entry.id for entry in view.items if entry.decided_at <= at), None)
    if made is None:
        first = f", the first kept is of {view.items[-1].decided_at.isoformat()}" if view.items else ""
        fix = f"`entrepot decisions {ref.text}` lists what is kept"
        raise CliError(f"no decision about {ref.text} was made by then{first}", fix=fix, code=ExitCode.NOT_FOUND)
    return made


def _looks_like_id(text: str) -> bool:
    """Whether it may be a decision's id, or the beginning of one: a job may be named so too, hence only "may"."""
    return _ID_START.fullmatch(text) is not None


@contextmanager
def _no_job_either(text: str) -> Iterator[None]:
    """What looked like an id and is none was most likely meant as one: the error must not speak of jobs alone."""
    try:
        yield
    except CliError as error:
        if error.code is not ExitCode.NOT_FOUND:
            raise
        if _SHORT_START.fullmatch(text):
            what = (
                f"there is no job {text}, and as the beginning of a decision's id it is too short: "
                f"at least {SHORTEST_START} letters"
            )
            fix = "write more of the id; `entrepot decisions` lists ids"
        else:
            what = f"there is no decision whose id is {text} or begins with it, and no job of that name"
            fix = "`entrepot decisions` lists ids; old decisions and repeated waits are not kept"
        raise CliError(what, where=error.where, fix=fix, code=ExitCode.NOT_FOUND) from None


def _one(decision_id: str, output: Output, server: str, store: str | None) -> bool:
    """Print one decision in full; False when there is none of that id."""

    def live(client: Client) -> tuple[DecisionView | None, bytes | None]:
        try:
            return client.get(DecisionView, f"/v1/decisions/{decision_id}")
        except CliError as error:
            if error.code is not ExitCode.NOT_FOUND:
                raise
            return None, None

    view, raw = _ask(server, store, live, lambda kept: kept.decision(decision_id))
    if view is None:
        return False
    emit(view, raw, output, partial(decision_page, view))
    return True


def _narrowed(limit: int, cluster: str | None, outcome: Outcome | None) -> dict[str, str | int]:
    params: dict[str, str | int] = {"limit": limit}
    if cluster is not None:
        params["cluster"] = cluster
    if outcome is not None:
        params["outcome"] = outcome.value
    return params


def _job_path(prefix: str, ref: JobRef) -> tuple[str, dict[str, str | int]]:
    return f"{prefix}/{ref.namespace}/{ref.name}", {"kind": ref.kind} if ref.kind is not None else {}


def _ask(
    server: str,
    store: str | None,
    live: Callable[[Client], tuple[T, bytes | None]],
    kept: Callable[[Records], T],
) -> tuple[T, bytes | None]:
    """Ask the daemon; when it cannot be reached and its store file is named, read the records, and say so."""
    try:
        with Client(server) as client:
            return live(client)
    except Unreachable as error:
        if store is None:
            raise
        # Imported here: opening a database takes longer to load than everything else together.
        from dispatcher.cli.records import Records

        records = Records(store)
        found = kept(records)
        note(f"{error.what}; this is from the records in {records.where}")
        return found, None
