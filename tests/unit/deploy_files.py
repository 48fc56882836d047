"""Reading `deploy/` without kubectl: what the kustomizations list, by kind and name, before any patch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Grant:
    """One permission that a role gives. `name` is empty where it is given for every name."""

    verb: str
    group: str
    resource: str
    name: str = ""


def documents(path: Path) -> list[Manifest]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


@cache
def listed(folder: str) -> tuple[Path, ...]:
    """The files that a kustomization and those below it are made of."""
    base = DEPLOY / folder
    content = documents(base / "kustomization.yaml")[0]
    found: list[Path] = []
    for entry in [*content.get("resources", []), *content.get("components", [])]:
        path = (base / entry).resolve()
        found += listed(str(path.relative_to(DEPLOY))) if path.is_dir() else [path]
    found += [base / patch["path"] for patch in content.get("patches", []) if "path" in patch]
    return tuple(found)


@cache
def manifests(folder: str) -> tuple[Manifest, ...]:
    return tuple(document for path in listed(folder) for document in documents(path))


def one(folder: str, kind: str, name: str | None = None) -> Manifest:
    """The only object of that kind (and name)."""
    found = [m for m in manifests(folder) if m["kind"] == kind and name in (None, m["metadata"]["name"])]
    assert len(found) == 1, f"{len(found)} objects of kind {kind} in {folder}"
    return found[0]


def grants(role: Manifest) -> Iterator[Grant]:
    """Every permission of a role, one by one."""
    for rule in role["rules"]:
        for group in rule.get("apiGroups", []):
            for resource in rule.get("resources", []):
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames") or [""]:
                        yield Grant(verb, group, resource, name)


def roles(folder: str) -> list[Manifest]:
    return [m for m in manifests(folder) if m["kind"] in ("Role", "ClusterRole")]
