"""Errors as RFC 9457 problem details: what is wrong, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from dispatcher.core.errors import EntrepotError
from dispatcher.core.explain_shapes import shape_text, words_of
from dispatcher.core.nearness import nearest
from dispatcher.web.models import Problem

MEDIA_TYPE = "application/problem+json"
_TYPE = "urn:entrepot:problem:"
_FORMS = {
    "namespace": "a namespace (at most 63 lower case letters, digits and '-')",
    "name": "a name (lower case letters, digits, '-' and '.')",
    "cluster": "a cluster's name (lower case letters, digits, '-' and '.')",
    "kind": "a kind (letters only, such as jobset)",
    "decision_id": "a decision's id (letters, digits, '-' and '_')",
}
"""Parameters of paths and queries that have a pattern, as people would say it."""


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
    fault = error.errors()[0]
    name, context, given = str(fault["loc"][-1]), fault.get("ctx", {}), fault.get("input")
    text = shape_text(fault["type"], context)
    if fault["type"] == "string_pattern_mismatch":
        text = f"{_FORMS.get(name, 'a name')} is expected"
    detail = f"{name} = {given!r}: {text}" if isinstance(given, str) else f"{name}: {text}"
    near = nearest(str(given), words_of(str(context.get("expected", ""))))
    return _answer(ProblemError(400, "bad-input", detail, "see /openapi.json for what is allowed", near).problem)


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
