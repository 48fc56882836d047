"""`policy explain`: where the law lets one workload go, and, where it does not, by which line and what would help."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from dispatcher.cli import policy_state
from dispatcher.cli.errors import CliError, ExitCode
from dispatcher.cli.options import (
    DEFAULT_SERVER,
    JobArgument,
    JobRef,
    NamespaceOption,
    Output,
    OutputOption,
    ServerOption,
    cluster_name,
    parse_job,
)
from dispatcher.cli.policy_options import instant
from dispatcher.cli.policy_state import StateOption
from dispatcher.cli.printing import emit_data, note

if TYPE_CHECKING:
    from dispatcher.core.work import Work, Workbook

AtOption = Annotated[str | None, typer.Option("--at", help="as of this instant; else now", metavar="TIME")]
RulesOption = Annotated[
    str | None,
    typer.Option("--rules", help="under these rules instead of those in force", metavar="DIR|REVISION:DIR"),
]


def explain(  # noqa: PLR0913 - one parameter an option: that is how typer declares a command line
    job: JobArgument,
    cluster: Annotated[
        list[str] | None, typer.Option("--cluster", help="only this cluster (may be repeated)", metavar="CLUSTER")
    ] = None,
    at: AtOption = None,
    state: StateOption = None,
    rules: RulesOption = None,
    namespace: NamespaceOption = None,
    server: ServerOption = DEFAULT_SERVER,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say where the law lets a live workload go; of each other cluster the rule, the clause and what would help.

    Asks the daemon, or with --state a file of `entrepot snapshot`. With --cluster or -o wide every reason is told.

    Exit codes: 0 there is an answer, 2 nothing could be judged, 3 no such workload, 4 no daemon.
    """
    ref, named = parse_job(job, namespace), [cluster_name(name) for name in cluster or ()]
    book = policy_state.of_file(state) if state is not None else policy_state.of_daemon(server)
    moment = instant(at) if at is not None else book.taken_at
    # Imported here: `policy lint` must answer at once.
    from dispatcher.cli import policy_explain_show as show
    from dispatcher.core.brief import brief_on

    policy = policy_state.policy_at(rules, moment) if rules is not None else book.policy
    work = _find(ref, book)
    known = {*work.request.listed_clusters, *policy.clusters}
    for name in named:
        if name not in known:
            fix = f"name one of {', '.join(sorted(known))}"
            raise CliError(f"there is no cluster {name!r}", where="--cluster", fix=fix, code=ExitCode.NOT_FOUND)
    brief = brief_on(work, policy, moment, named)
    if output in (Output.JSON, Output.YAML):
        emit_data(show.to_data(brief), output)
    else:
        sys.stdout.write(show.to_text(brief, full=output is Output.WIDE or bool(named)))


def _find(ref: JobRef, book: Workbook) -> Work:
    found = [one for one in book.work if _is(one, ref)]
    if len(found) == 1:
        return found[0]
    if found:
        fix = f"name one of {', '.join(one.key for one in found[:10])}"
        raise CliError(f"{len(found)} workloads are called {ref.text}", where="JOB", fix=fix, code=ExitCode.USAGE)
    if any(key.partition("/")[2] == ref.name for key in book.unread):
        note("what it declares cannot be understood: `entrepot why` says what is wrong with it")
    what = f"no workload {ref.text} waits or runs"
    raise CliError(what, where="JOB", fix="`entrepot queue` lists them", code=ExitCode.NOT_FOUND)


def _is(work: Work, ref: JobRef) -> bool:
    request = work.request
    if ref.namespace is not None and request.namespace != ref.namespace:
        return False
    if ref.kind not in (None, "workload") and request.job_kind.lower() != ref.kind:
        return False
    names = (request.name,) if ref.kind == "workload" else (request.name, request.job_name)
    return ref.name in names
