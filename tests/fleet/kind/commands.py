"""Run the commands that `render.py` lists. Not verified: no container engine was at hand."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.fleet import manifests, rbac
from tests.fleet.kind import render
from tests.fleet.manifests import FleetCluster
from tests.fleet.processes import FleetError

NODE_IMAGE_VARIABLE = "ENTREPOT_KIND_NODE_IMAGE"
Log = Callable[[str], None]


def up(directory: Path, hub_objects: Sequence[Mapping[str, Any]], clusters: Sequence[FleetCluster], log: Log) -> None:
    """Create the clusters and everything in them. A start that fails leaves them for a look; `down` deletes them."""
    _require_tools()
    directory.mkdir(parents=True, exist_ok=True)
    node_image = os.environ.get(NODE_IMAGE_VARIABLE, "")
    steps = render.up_steps(directory, hub_objects, clusters, node_image=node_image)
    for number, step in enumerate(steps, start=1):
        log(f"[{number}/{len(steps)}] {step.title}")
        _run(step.argv, _input(directory, step))
    daemon = _as_account(directory, render.HUB_NAME, rbac.DAEMON)
    rbac.write_kubeconfig(render.daemon_kubeconfig_path(directory), daemon)
    log(f"export KUBECONFIG={render.kubeconfig_path(directory, render.HUB_NAME)}")


def down(directory: Path, log: Log) -> None:
    """Delete the clusters of this fleet, and only those."""
    _require_tools()
    command = render.down_command(_run(["kind", "get", "clusters"]).split())
    if command is None:
        log("no kind fleet runs here")
        return
    _run(command)
    shutil.rmtree(directory, ignore_errors=True)
    log(f"deleted {len(command) - 3} clusters")


def create(kubeconfig: Path, manifest: Mapping[str, Any]) -> str:
    """Create one object on a cluster of the fleet."""
    return _run(["kubectl", "--kubeconfig", str(kubeconfig), "create", "-f", "-"], yaml.safe_dump(dict(manifest)))


def _input(directory: Path, step: render.Step) -> str:
    if step.secret_for_worker:
        return _secret(step.secret_for_worker)
    if step.access_for_worker:
        content = _as_account(directory, step.access_for_worker, rbac.READER)
        return yaml.safe_dump(rbac.access_secret(step.access_for_worker, content))
    return step.stdin


def _as_account(directory: Path, cluster: str, account: str) -> dict[str, Any]:
    """A kubeconfig of a cluster, as this machine reaches it, for one of the daemon's ServiceAccounts."""
    content = yaml.safe_load(render.kubeconfig_path(directory, cluster).read_text())
    token = _run(render.token_command(directory, cluster, account)).strip()
    return render.as_account(content, account, token)


def _secret(worker: str) -> str:
    content = yaml.safe_load(_run(render.internal_kubeconfig_command(worker)))
    return yaml.safe_dump(manifests.kubeconfig_secret(worker, content))


def _require_tools() -> None:
    missing = [tool for tool in ("kind", "kubectl") if shutil.which(tool) is None]
    if missing:
        raise FleetError(f"not on PATH: {', '.join(missing)} (the fleet without containers needs neither)")


def _run(argv: Sequence[str], stdin: str = "") -> str:
    answer = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise FleetError(f"`{' '.join(argv)}` failed:\n{answer.stderr.strip()}")
    return answer.stdout
