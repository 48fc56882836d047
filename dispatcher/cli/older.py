"""Answers of daemons that are older than this command line (docs/cli.md, Versions).

Whoever is on call has one command line and many daemons. An answer may lack what came later: then it is not known.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

M = TypeVar("M", bound=BaseModel)


def read_answer(model: type[M], content: bytes) -> M:
    """An answer as `model`. Fields that it does not know are skipped; missing ones are null, or empty where they list.

    A field of another kind that comes later than its answer needs a default in the model.

    Raises:
        ValidationError: it is not such an answer, however old.
    """
    try:
        return model.model_validate_json(content, extra="ignore")
    except ValidationError as error:
        missing = _missing(error)
        if not missing:
            raise
        data = json.loads(content)
        for fault in missing:
            _put(data, fault, None)
        for fault in _faults(model, data):
            if fault["type"] in ("tuple_type", "list_type"):
                _put(data, fault, [])
        return model.model_validate_json(json.dumps(data), extra="ignore")


def _missing(error: ValidationError) -> list[ErrorDetails]:
    """What is missing, where nothing else is wrong; else nothing."""
    faults = error.errors(include_url=False, include_input=False)
    return faults if all(fault["type"] == "missing" for fault in faults) else []


def _faults(model: type[BaseModel], data: Any) -> list[ErrorDetails]:
    try:
        model.model_validate_json(json.dumps(data), extra="ignore")
    except ValidationError as error:
        return error.errors(include_url=False, include_input=False)
    return []


def _put(data: Any, fault: ErrorDetails, value: object) -> None:
    *way, last = fault["loc"]
    for step in way:
        data = data[step]
    data[last] = value
