"""The JSON Schemas in config/schema are those of the models, and the example holds against them."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dispatcher.config.blueprint import FILES
from dispatcher.config.schema import schema_name, schemas, write_schemas
from dispatcher.config.strictyaml import Mapping, Node, Sequence, parse

CONFIG = Path(__file__).parents[2] / "config"
_NUMBER = re.compile(r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$")


def as_editors_read(node: Node) -> Any:
    """A tree with plain scalars resolved by YAML 1.2's core schema, as the language server of an editor does."""
    if isinstance(node, Mapping):
        return {key: as_editors_read(value) for key, (_, value) in node.entries.items()}
    if isinstance(node, Sequence):
        return [as_editors_read(item) for item in node.items]
    if node.quoted:
        return node.text
    if node.is_null:
        return None
    if node.text in ("true", "false"):
        return node.text == "true"
    if _NUMBER.match(node.text):
        return float(node.text) if "." in node.text else int(node.text)
    return node.text


@cache
def validator_of(schema: str) -> jsonschema.Draft202012Validator:
    """Of a file under `schema/`, made once: the models take a moment to say what they are."""
    found = json.loads(schemas()[schema])
    jsonschema.Draft202012Validator.check_schema(found)
    return jsonschema.Draft202012Validator(found)


def complaints(file: str, text: str, schema: str | None = None) -> list[str]:
    """What an editor would underline in a file, by the schema of its name unless it names another."""
    root, problems = parse(file, text.encode())
    assert root is not None, problems
    validator = validator_of(schema or schema_name(file))
    return [error.message for error in validator.iter_errors(as_editors_read(root))]


def test_the_schemas_in_the_repository_are_what_the_models_say() -> None:
    stored = {path.name: path.read_text(encoding="utf-8") for path in sorted((CONFIG / "schema").glob("*"))}
    assert stored == schemas(), "run: python -m dispatcher.config.schema"


@pytest.mark.parametrize("file", FILES)
def test_the_example_names_its_schema_and_holds_against_it(file: str) -> None:
    text = (CONFIG / file).read_text(encoding="utf-8")
    assert text.startswith(f"# yaml-language-server: $schema=schema/{schema_name(file)}\n")
    assert complaints(file, text) == []


MISTAKES = [
    pytest.param("fleet.yaml", "silence_limit:", "silence_limits:", id="an unknown key"),
    pytest.param("fleet.yaml", "silence_limit: PT60S", "silence_limit: 60 s", id="a duration that is none"),
    pytest.param("fleet.yaml", "  onprem-eu:\n", "  Onprem_EU:\n", id="a name that Kubernetes refuses"),
    pytest.param("queues.yaml", "default_class: simulation", "default_class: simulating", id="an unknown class"),
    pytest.param("queues.yaml", "h100: {gpus: 12}", "h100: {gpus: -12}", id="a negative share"),
    pytest.param("data.yaml", "size: 65TB", "size: large", id="a size that is none"),
    pytest.param("prices.yaml", "max_age_days: 400", "max_age_days: 0", id="an age of zero days"),
]


@pytest.mark.parametrize(("file", "old", "new"), MISTAKES)
def test_an_editor_shows_a_red_line_before_lint_does(file: str, old: str, new: str) -> None:
    text = (CONFIG / file).read_text(encoding="utf-8")
    assert old in text
    assert complaints(file, text.replace(old, new, 1)) != []


def test_every_key_has_a_text_for_hover() -> None:
    def bare(schema: Any, at: str) -> list[str]:
        if isinstance(schema, list):
            return [found for item in schema for found in bare(item, at)]
        if not isinstance(schema, dict):
            return []
        missing = [f"{at}.{key}" for key, item in schema.get("properties", {}).items() if "description" not in item]
        return missing + [found for key, item in schema.items() for found in bare(item, f"{at}.{key}")]

    assert [found for name, text in schemas().items() for found in bare(json.loads(text), name)] == []


def test_schemas_are_written_below_the_folder(tmp_path: Path) -> None:
    assert [path.name for path in write_schemas(tmp_path)] == sorted(schemas())
