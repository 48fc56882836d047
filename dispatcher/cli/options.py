"""Options that several commands share, and the reading of JOB."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer

from dispatcher.cli.errors import CliError, ExitCode

DEFAULT_SERVER = "http://127.0.0.1:8383"
DEFAULT_LISTEN = "127.0.0.1:8383"
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_KIND_WORDS = {"wl": "workload", "workloads": "workload"}


class Output(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


JobArgument = Annotated[
    str,
    typer.Argument(metavar="JOB", help="name, namespace/name, KIND/name (job/train) or the name of the Workload"),
]
NamespaceOption = Annotated[str | None, typer.Option("-n", "--namespace", help="namespace of JOB", metavar="NAME")]
OutputOption = Annotated[Output, typer.Option("-o", "--output", help="how to print", case_sensitive=False)]
ServerOption = Annotated[
    str, typer.Option("--server", envvar="ENTREPOT_SERVER", help="where the daemon's API is", metavar="URL")
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="ENTREPOT_STORE",
        help="the daemon's store (file or URL): read (never written) when the daemon cannot be reached",
        metavar="FILE|URL",
    ),
]


@dataclass(frozen=True, slots=True)
class JobRef:
    """What a person wrote for JOB; what they left out is None."""

    name: str
    namespace: str | None = None
    kind: str | None = None

    @property
    def text(self) -> str:
        parts = (self.namespace, self.kind, self.name)
        return "/".join(part for part in parts if part is not None)


def parse_job(text: str, namespace: str | None = None) -> JobRef:
    """Read `name`, `namespace/name`, `kind/name`, `namespace/kind/name`; kinds may be plural or carry a group.

    A first part that is a kind we know is a kind: a namespace named `job` is reached with -n.

    Raises:
        CliError: not a name that Kubernetes allows, or two different namespaces.
    """
    parts = text.split("/")
    if len(parts) > 3 or not all(parts):
        raise _bad(text)
    name, before = parts[-1], parts[:-1]
    kind = _kind(before[-1], certain=len(before) == 2 or namespace is not None) if before else None
    spaces = before[:-1] if kind is not None else before
    if namespace is not None and spaces and spaces != [namespace]:
        raise CliError(
            f"{text!r} names namespace {spaces[0]!r}, and -n says {namespace!r}",
            where="JOB and --namespace",
            fix="leave one of them out",
            code=ExitCode.USAGE,
        )
    space = namespace if namespace is not None else (spaces[0] if spaces else None)
    if not _NAME.fullmatch(name) or (space is not None and not _NAMESPACE.fullmatch(space)):
        raise _bad(text)
    return JobRef(name, space, kind)


_KINDS = frozenset(
    {
        *("job", "jobset", "pod", "deployment", "statefulset", "leaderworkerset", "appwrapper", "workload"),
        *("rayjob", "raycluster", "rayservice", "pytorchjob", "tfjob", "mpijob", "jaxjob", "xgboostjob", "paddlejob"),
        *("trainjob", "sparkapplication"),
    }
)


def _kind(word: str, *, certain: bool) -> str | None:
    """The kind that `word` stands for; only a known one, unless its place leaves no doubt."""
    plain = word.lower().split(".")[0]
    plain = _KIND_WORDS.get(plain, plain)
    singular = plain.removesuffix("s")
    if plain in _KINDS or singular in _KINDS:
        return plain if plain in _KINDS else singular
    return singular if certain and singular.isalpha() else None


def _bad(text: str) -> CliError:
    return CliError(
        f"{text!r} is not the name of a job",
        where="JOB",
        fix="write train, team-a/train, job/train or team-a/job/train (lower case letters, digits, '-' and '.')",
        code=ExitCode.USAGE,
    )


def cluster_name(text: str) -> str:
    """A cluster's name as written. Raises CliError."""
    if not _NAME.fullmatch(text):
        fix = "lower case letters, digits, '-' and '.'; `entrepot clusters` lists them"
        raise CliError(f"{text!r} is not the name of a cluster", where="CLUSTER", fix=fix, code=ExitCode.USAGE)
    return text


def instant(text: str, option: str) -> datetime:
    """An instant that was given on the command line, in UTC. Raises CliError."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        fix = "write 2026-03-01T12:00:00Z"
        raise CliError(f"{text!r} is not a time", where=option, fix=fix, code=ExitCode.USAGE) from None
    if found.tzinfo is None:
        raise CliError(f"{text!r} has no time zone", where=option, fix=f"write {text}Z", code=ExitCode.USAGE)
    return found.astimezone(UTC)
