"""Today's command line against answers of earlier daemons, as these gave them (docs/cli.md, Versions).

`answers/` has a folder for each version that was recorded: real answers on the demo, long lists cut short. They are
never edited; a version whose answers differ is recorded beside them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fastapi import FastAPI, Response
from pydantic import BaseModel, ValidationError

from dispatcher.cli.main import run
from dispatcher.cli.older import read_answer
from dispatcher.web.models import Problem, WhyView
from tests.unit.api_world import served

ANSWERS = Path(__file__).parent / "answers"
VERSIONS = sorted(folder.name for folder in ANSWERS.iterdir())
RUNS, WAITS = "autonomy/world-model", "autonomy/foundation-xl"
COMMANDS = {
    "why-runs": (f"/v1/why/{RUNS}", ("why", RUNS)),
    "why-waits": (f"/v1/why/{WAITS}", ("why", WAITS)),
    "why-not": (f"/v1/why-not/{RUNS}/onprem-eu", ("why-not", RUNS, "onprem-eu")),
    "queue": ("/v1/workloads", ("queue",)),
    "clusters": ("/v1/clusters", ("clusters",)),
    "decisions": ("/v1/decisions", ("decisions",)),
    "decision": ("/v1/decisions/{}", ("decisions", "{}")),
}


def daemon(version: str) -> FastAPI:
    """What a daemon of that version answered."""
    app = FastAPI()
    for name, (path, _) in COMMANDS.items():
        content = (ANSWERS / version / f"{name}.json").read_bytes()
        path = path.format(json.loads(content).get("id"))
        app.add_api_route(path, lambda content=content: Response(content, media_type="application/json"))
    return app


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_of_earlier_daemons_are_shown_and_passed_on(version: str, capsys: pytest.CaptureFixture[str]) -> None:
    with served(daemon(version)) as url:
        for name, (_, command) in COMMANDS.items():
            recorded = json.loads((ANSWERS / version / f"{name}.json").read_bytes())
            arguments = [part.format(recorded.get("id")) for part in command]
            for output in ("table", "wide", "json"):
                assert run([*arguments, "-o", output, "--server", url]) == 0, capsys.readouterr().err
                shown = capsys.readouterr().out
            assert json.loads(shown) == recorded


def test_versions_are_recorded_from_before_turns_and_from_the_first() -> None:
    lack = {v for v in VERSIONS if "turn" not in json.loads((ANSWERS / v / "why-waits.json").read_bytes())["workload"]}
    assert len(lack) >= 2


class Part(BaseModel):
    name: str
    later: str | None
    lists: tuple[int, ...]


class Whole(BaseModel):
    parts: tuple[Part, ...]
    one: Part | None


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        pytest.param('{"parts": []}', Whole(parts=(), one=None), id="what may be null is null"),
        pytest.param(
            '{"parts": [{"name": "a"}], "one": {"name": "b", "lists": [1]}}',
            Whole(parts=(Part(name="a", later=None, lists=()),), one=Part(name="b", later=None, lists=(1,))),
            id="at every depth, and lists are empty",
        ),
        pytest.param('{"parts": [], "one": null, "newer": 7}', Whole(parts=(), one=None), id="what is new is skipped"),
    ],
)
def test_what_an_older_daemon_does_not_say_is_not_known(content: str, shown: Whole) -> None:
    assert read_answer(Whole, content.encode()) == shown


@pytest.mark.parametrize(
    "content",
    ['{"parts": [{"later": "x"}]}', '{"parts": 7}', '{"parts": [{"name": 7}]}', "[]", "<html>", ""],
    ids=["a field that is always there", "another kind", "another kind deeper", "a list", "no JSON", "nothing"],
)
def test_what_is_no_answer_of_any_age_is_not_read(content: str) -> None:
    with pytest.raises(ValidationError):
        read_answer(Whole, content.encode())


@pytest.mark.parametrize("model", [WhyView, Problem])
def test_nothing_at_all_is_no_answer(model: type[BaseModel]) -> None:
    with pytest.raises(ValidationError):
        read_answer(model, b"{}")
