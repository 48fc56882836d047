"""The demo's jobs: plain manifests in `demo/jobs/`, one file a workload class, as a user would apply them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "jobs"
Manifest = dict[str, Any]


def manifests() -> list[Manifest]:
    """All of them, in a stable order."""
    found: list[Manifest] = []
    for path in sorted(FOLDER.glob("*.yaml")):
        found += [document for document in yaml.safe_load_all(path.read_text()) if document]
    return found


def name_of(manifest: Manifest) -> str:
    """namespace/name."""
    metadata = manifest["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"
