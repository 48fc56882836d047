"""Calls to the daemon's API: bounded in time, tried once, and every failure turned into what, where, fix."""

from __future__ import annotations

import re
from types import TracebackType
from typing import Self, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from dispatcher.cli.errors import CliError, ExitCode
from dispatcher.cli.older import read_answer
from dispatcher.cli.options import JobRef
from dispatcher.core.explain_shapes import place_text, shape_text
from dispatcher.web.models import MatchList, Problem

M = TypeVar("M", bound=BaseModel)
_TIMEOUT = httpx.Timeout(10.0, connect=3.0)
_ERRNO = re.compile(r"^\[Errno -?\d+\] ")
_AMBIGUOUS = 409
_CODES = {400: ExitCode.USAGE, 404: ExitCode.NOT_FOUND, 409: ExitCode.USAGE, 422: ExitCode.USAGE}


class Unreachable(CliError):
    """Nobody answers at the server's address."""


class Client:
    """`with Client(server) as client`; one connection, closed at the end."""

    def __init__(self, server: str) -> None:
        url = server.rstrip("/")
        if not url.startswith(("http://", "https://")):
            raise CliError(
                f"{server!r} is not a URL",
                where="--server or ENTREPOT_SERVER",
                fix="write http://HOST:PORT",
                code=ExitCode.USAGE,
            )
        self.server = url
        # No proxy from the environment: the daemon listens on loopback or inside the cluster. Reading the certificates
        # of the world's authorities takes longer than an answer: only where there is a certificate to be checked.
        self._http = httpx.Client(timeout=_TIMEOUT, trust_env=False, verify=url.startswith("https://"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def get(self, model: type[M], path: str, params: dict[str, str | int] | None = None) -> tuple[M, bytes]:
        """GET `path` as `model`, with the bytes that came.

        Raises:
            Unreachable: no connection, or no answer in time.
            CliError: the daemon said no, or answered what this version cannot read.
        """
        try:
            response = self._http.get(self.server + path, params=params)
        except httpx.InvalidURL as error:
            raise CliError(f"{self.server!r}: {error}", where="--server", fix="write http://HOST:PORT") from None
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None
        if response.status_code != 200:
            raise self._refused(response)
        return self._read(model, response), response.content

    def resolve(self, ref: JobRef) -> JobRef:
        """Fill in the namespace of a bare name. Raises CliError when none or several jobs have that name."""
        if ref.namespace is not None:
            return ref
        params: dict[str, str | int] = {"name": ref.name}
        if ref.kind is not None:
            params["kind"] = ref.kind
        found, _ = self.get(MatchList, "/v1/matches", params)
        if len(found.items) == 1:
            only = found.items[0]
            return JobRef(only.name, only.namespace, "workload")
        names = [
            f"{m.namespace}/{m.job.kind.lower()}/{m.job.name}" if m.job else f"{m.namespace}/{m.name}"
            for m in found.items
        ]
        raise ambiguous(ref, names) if names else self._no_match(ref, found)

    def _no_match(self, ref: JobRef, found: MatchList) -> CliError:
        meant = f": did you mean {', '.join(found.near)}?" if found.near else ""
        return CliError(
            f"there is no job or Workload {ref.text} on the hub, and no decision about one{meant}",
            where=self.server,
            fix="check the name; `entrepot queue` lists what there is. A job without a queue label is not seen here",
            code=ExitCode.NOT_FOUND,
        )

    def _unreachable(self, error: httpx.HTTPError) -> Unreachable:
        slow = isinstance(error, httpx.TimeoutException)
        what = "the daemon did not answer in time" if slow else "the daemon cannot be reached"
        reason = _ERRNO.sub("", str(error)) or type(error).__name__
        return Unreachable(
            f"{what}: {reason}",
            where=self.server,
            fix="start it (entrepot serve), or name its address with --server URL or ENTREPOT_SERVER; why, why-not and "
            "decisions read its records with --store FILE",
            code=ExitCode.UNREACHABLE,
        )

    def _refused(self, response: httpx.Response) -> CliError:
        try:
            problem = Problem.model_validate_json(response.content, extra="ignore")
        except ValidationError:
            return CliError(
                f"HTTP {response.status_code} {response.reason_phrase}",
                where=str(response.url),
                fix="is this the address of an Entrepot daemon?",
            )
        code = _CODES.get(response.status_code, ExitCode.ERROR)
        return CliError(problem.detail + _near(problem), where=self.server, fix=problem.fix, code=code)

    def _read(self, model: type[M], response: httpx.Response) -> M:
        try:
            return read_answer(model, response.content)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where, rule = place_text(first["loc"]) or "the whole", shape_text(first["type"], first.get("ctx", {}))
            raise CliError(
                f"the answer cannot be read: {where}: {rule}",
                where=str(response.url),
                fix="use the command line of the daemon's own version",
            ) from None


def _near(problem: Problem) -> str:
    """Names that may have been meant, unless the sentence has them; of an ambiguous one, all that it stands for."""
    if not problem.near or problem.near[0] in problem.detail:
        return ""
    names = ", ".join(problem.near)
    return f": {names}" if problem.status == _AMBIGUOUS else f": did you mean {names}?"


def ambiguous(ref: JobRef, names: list[str]) -> CliError:
    return CliError(
        f"{ref.text!r} is the name of {len(names)} jobs: {', '.join(names)}",
        where="JOB",
        fix="name one of them with its namespace (and kind)",
        code=ExitCode.USAGE,
    )
