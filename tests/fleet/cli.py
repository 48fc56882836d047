"""`python -m tests.fleet up|down|status|kubeconfig`: a fleet that outlives the command, for people and for the demo."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fleet import sample
from tests.fleet.fleet import FLEET_FILE, HUB_NAME, LocalFleet, end, is_running, memory_bytes
from tests.fleet.manifests import FleetCluster, load_all, split_nodes
from tests.fleet.processes import FleetError, SupervisorClient, read_json

DEFAULT_DIRECTORY = Path(__file__).resolve().parents[2] / ".fleet"
DEFAULT_WORKERS = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 failed, 3 no fleet runs here."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except FleetError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: nothing is left running", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fleet", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="start a fleet and leave it running")
    up.add_argument("--workers", type=int, default=DEFAULT_WORKERS, help="how many workers (default: %(default)s)")
    up.add_argument("--objects", type=Path, help="folder of rendered manifests: hub.yaml, and one file for each worker")
    up.add_argument("--blueprint", type=Path, help="a blueprint, for the hub and three of its clusters")
    up.add_argument("--kind", action="store_true", help="with kind clusters in a container engine instead")
    up.set_defaults(run=_up)
    down = commands.add_parser("down", help="end the fleet")
    down.add_argument("--kind", action="store_true", help="the fleet of kind clusters")
    down.set_defaults(run=_down)
    status = commands.add_parser("status", help="what runs, where, with how much memory")
    status.add_argument("-o", "--output", choices=("table", "json"), default="table")
    status.set_defaults(run=_status)
    kubeconfig = commands.add_parser("kubeconfig", help="print the path of a cluster's kubeconfig")
    kubeconfig.add_argument("cluster", nargs="?", default=HUB_NAME)
    kubeconfig.set_defaults(run=_kubeconfig)
    for command in (up, down, status, kubeconfig):
        command.add_argument("--dir", type=Path, default=DEFAULT_DIRECTORY, help="the fleet's folder (default: .fleet)")
    return parser


def read_objects(folder: Path) -> tuple[list[dict[str, Any]], list[FleetCluster]]:
    """Rendered manifests: `hub.yaml` for the hub, `NAME.yaml` for a worker. Node objects become fake nodes."""
    hub_path = folder / f"{HUB_NAME}.yaml"
    if not hub_path.is_file():
        raise FleetError(f"{folder} has no {hub_path.name}")
    clusters = []
    for path in sorted(folder.glob("*.yaml")):
        if path != hub_path:
            rest, nodes = split_nodes(load_all(path))
            clusters.append(FleetCluster(path.stem, rest, nodes))
    return load_all(hub_path), clusters


def blueprint_objects(folder: Path) -> tuple[list[dict[str, Any]], list[FleetCluster]]:
    """What a blueprint stands for: its hub, and the clusters that the demo takes of it."""
    from demo.fleets import fleet_objects
    from dispatcher.config import load_blueprint
    from dispatcher.runtime import SystemClock

    hub, clusters = fleet_objects(load_blueprint(folder, SystemClock().now()))
    return [dict(manifest) for manifest in hub], clusters


def _objects(options: argparse.Namespace) -> tuple[list[dict[str, Any]], list[FleetCluster]]:
    if options.objects:
        return read_objects(options.objects)
    if options.blueprint:
        return blueprint_objects(options.blueprint)
    names = sample.worker_names(options.workers)
    return sample.hub_objects(names), sample.clusters(names)


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _up(options: argparse.Namespace) -> int:
    hub_objects, clusters = _objects(options)
    if options.kind:
        from tests.fleet.kind import commands  # only people with a container engine need it

        commands.up(options.dir / "kind", hub_objects, clusters, _log)
        return 0
    fleet = LocalFleet.start(options.dir, hub_objects, clusters, detached=True, log=_log)
    print(f"export KUBECONFIG={fleet.hub.kubeconfig_path}")
    return 0


def _down(options: argparse.Namespace) -> int:
    if options.kind:
        from tests.fleet.kind import commands  # only people with a container engine need it

        commands.down(options.dir / "kind", _log)
        return 0
    ended = end(options.dir)
    _log(f"ended {len(ended)} processes" if ended else "no fleet runs here")
    return 0


def _status(options: argparse.Namespace) -> int:
    if not is_running(options.dir):
        _log(f"no fleet runs in {options.dir}")
        return 3
    processes = SupervisorClient(options.dir).processes()
    memory = memory_bytes(processes)
    clusters = (read_json(options.dir / FLEET_FILE) or {"clusters": {}})["clusters"]
    rows = {
        name: {"pid": item["pid"], "exit_code": item["exit_code"], "memory_bytes": memory.get(name, 0)}
        for name, item in processes.items()
    }
    if options.output == "json":
        shown = {name: {"server_url": c["server_url"], "kubeconfig": c["kubeconfig"]} for name, c in clusters.items()}
        print(json.dumps({"clusters": shown, "processes": rows}, indent=2))
        return 0
    for name, cluster in clusters.items():
        print(f"{name:<12} {cluster['server_url']:<26} {cluster['kubeconfig']}")
    print(f"\n{'PROCESS':<30} {'PID':>8} {'STATE':<10} {'MEMORY':>9}")
    for name, row in rows.items():
        state = "running" if row["exit_code"] is None else f"ended {row['exit_code']}"
        print(f"{name:<30} {row['pid']:>8} {state:<10} {row['memory_bytes'] / 2**20:>5.0f} MiB")
    print(f"{'total':<30} {'':>8} {'':<10} {sum(memory.values()) / 2**20:>5.0f} MiB")
    return 0


def _kubeconfig(options: argparse.Namespace) -> int:
    fleet = LocalFleet.attach(options.dir)
    endpoints = {HUB_NAME: fleet.hub, **fleet.workers}
    if options.cluster not in endpoints:
        raise FleetError(f"no cluster {options.cluster!r}, there are {', '.join(endpoints)}")
    print(endpoints[options.cluster].kubeconfig_path)
    return 0
