"""Errors as RFC 9457 problem details: what is wrong, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from dispatcher.core.errors import EntrepotError
from dispatcher.web.models import Problem

MEDIA_TYPE = "application/problem+json"
_TYPE = "urn:entrepot:problem:"


class ProblemError(Exception):
    """Raised by routes; becomes the answer. `slug` names the kind of problem and is stable."""

    def __init__(self, status: int, slug: str, detail: str, fix: str, near: Sequence[str] = ()) -> None:
        super().__init__(detail)
        self.problem = Problem(
            type=_TYPE + slug,
            title=slug.replace("-", " "),
            status=status,
            detail=detail,
            fix=fix,
            near=tuple(near),
        )


def install(app: FastAPI) -> None:
    """Make every error of `app`, expected or not, a problem document."""
    app.add_exception_handler(ProblemError, _on_problem)
    app.add_exception_handler(RequestValidationError, _on_bad_input)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(EntrepotError, _on_store)


async def _on_problem(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ProblemError)
    return _answer(error.problem)


async def _on_bad_input(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    found = ProblemError(400, "bad-input", f"{where}: {first['msg']}", "see /openapi.json for what is allowed")
    return _answer(found.problem)


async def _on_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    slug = {404: "no-such-path", 405: "read-only"}.get(error.status_code, "http-error")
    detail = f"{request.method} {request.url.path}: {error.detail}"
    return _answer(ProblemError(error.status_code, slug, detail, "see /openapi.json for the paths that exist").problem)


async def _on_store(_: Request, error: Exception) -> JSONResponse:
    """The store did not answer. Everything that needs no history still works."""
    fix = "look at the disk of the daemon's store file (entrepot serve --store) and at its logs; then ask again"
    return _answer(ProblemError(503, "store-unavailable", str(error), fix).problem)


def _answer(problem: Problem) -> JSONResponse:
    return JSONResponse(problem.model_dump(mode="json"), status_code=problem.status, media_type=MEDIA_TYPE)
