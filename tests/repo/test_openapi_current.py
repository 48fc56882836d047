"""docs/openapi.json is what the daemon serves. Write it anew with: python -m tests.repo.test_openapi_current"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path

from dispatcher.store import SqlStore
from dispatcher.web.api import build_api
from tests.unit.api_world import World

DOCUMENT = Path(__file__).parents[2] / "docs" / "openapi.json"


class _NoStore(SqlStore):
    """The schema needs no store; the type does."""

    def __init__(self) -> None: ...


@cache
def current() -> str:
    world = World()
    return json.dumps(build_api(world.state, _NoStore(), world.vitals).openapi(), indent=1, ensure_ascii=False) + "\n"


def test_the_documented_schema_is_the_served_one() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == current(), "run: python -m tests.repo.test_openapi_current"


def test_every_path_is_a_get_and_documents_its_errors() -> None:
    paths = json.loads(current())["paths"]
    assert all(list(operations) == ["get"] for operations in paths.values())
    for path, operations in paths.items():
        if path.startswith("/v1/"):
            assert {"200", "404", "503"} <= set(operations["get"]["responses"]), path


if __name__ == "__main__":
    DOCUMENT.write_text(current(), encoding="utf-8")
    sys.stdout.write(f"{DOCUMENT}\n")
