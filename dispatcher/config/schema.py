"""JSON Schemas of the blueprint's files, generated from the models: completion, hover texts and red lines in an editor.

`python -m dispatcher.config.schema [FOLDER]` writes them to FOLDER/schema (default: config/schema).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from dispatcher.config.blueprint import DATA, FLEET, PRICES, QUEUES
from dispatcher.config.data_file import DataFile
from dispatcher.config.fleet_file import FleetFile
from dispatcher.config.prices_file import PricesFile
from dispatcher.config.queues_file import QueuesFile
from dispatcher.config.residency.model import ResidencyFile
from dispatcher.config.residency.testing_model import RuleTestFile

DIALECT = "https://json-schema.org/draft/2020-12/schema"
RESIDENCY_FILE = "residency.yaml"
"""Stands for any file of residency/: all of them have one schema."""
RULE_TESTS = "residency-test.yaml"
"""The same for the tests beside the rules (*.test.yaml)."""
_MODELS: Mapping[str, type[BaseModel]] = {
    FLEET: FleetFile,
    QUEUES: QueuesFile,
    DATA: DataFile,
    PRICES: PricesFile,
    RESIDENCY_FILE: ResidencyFile,
    RULE_TESTS: RuleTestFile,
}


def schema_name(file: str) -> str:
    """fleet.yaml's schema lies in schema/fleet.schema.json beside it."""
    return f"{file.removesuffix('.yaml')}.schema.json"


def schemas() -> dict[str, str]:
    """File name under `schema/` to its text."""
    return {schema_name(file): _text(file, model) for file, model in _MODELS.items()}


def write_schemas(folder: Path) -> tuple[Path, ...]:
    """Write them below a blueprint's folder. Returns the files, in order of name. Raises OSError."""
    target = folder / "schema"
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in sorted(schemas().items()):
        (target / name).write_text(text, encoding="utf-8")
        written.append(target / name)
    return tuple(written)


def _text(file: str, model: type[BaseModel]) -> str:
    schema = {"$schema": DIALECT, "title": file, **_tidied(model.model_json_schema())}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _tidied(value: Any) -> Any:
    """Without what only Python says (class names as titles), and with names of keys checked as we check them."""
    if isinstance(value, list):
        return [_tidied(item) for item in value]
    if not isinstance(value, dict):
        return value
    schema = {key: _tidied(item) for key, item in value.items() if key not in ("title", "properties")}
    if "properties" in value:
        schema["properties"] = {name: _property(item) for name, item in value["properties"].items()}
    patterns = schema.pop("patternProperties", None)
    if patterns is not None:
        # Read as generated, a name that does not match would go unseen; here it is a red line.
        (pattern, schema["additionalProperties"]), *_ = patterns.items()
        schema["propertyNames"] = {"pattern": pattern}
    return schema


def _property(schema: dict[str, Any]) -> Any:
    """One key. Its default goes into the hover text, since the models hold it in inner units."""
    default = schema.get("default")
    tidied: dict[str, Any] = _tidied({key: item for key, item in schema.items() if key != "default"})
    if isinstance(default, (str, int)):
        tidied["description"] = f"{tidied['description']} Default: {_as_written(default, schema)}."
    return tidied


def _as_written(default: str | int, schema: Mapping[str, Any]) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, str):
        return default or "empty"
    if str(schema.get("pattern", "")).startswith("^P"):
        return f"PT{default}S" if default % 60 else f"PT{default // 60}M"
    return f"{default / 1000:g}" if "exclusiveMinimum" in schema else str(default)


if __name__ == "__main__":
    write_schemas(Path(sys.argv[1] if len(sys.argv) > 1 else "config"))
