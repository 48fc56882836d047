"""What the doctor asks a daemon: only that one sees catalog and stores from where it runs, and with its keys, and only
it has looked at the clusters for long enough to know a ghost."""

from __future__ import annotations

from collections.abc import Callable

from dispatcher.cli.client import Client
from dispatcher.cli.errors import CliError
from dispatcher.core.doctor.facts import CatalogFacts, DaemonFacts, GhostFacts, ReplicaFacts
from dispatcher.web.data import CatalogView, DataSetList
from dispatcher.web.models import ClusterList, HealthView


def ask_daemon(server: str, progress: Callable[[str], None]) -> DaemonFacts:
    """What it says of data and of ghosts. One that does not answer is a fact, like a cluster that does not.

    Raises:
        CliError: `server` is no URL.
    """
    with Client(server) as client:
        progress(f"asking {client.server}")
        try:
            view, _ = client.get(DataSetList, "/v1/data")
            fleet, _ = client.get(ClusterList, "/v1/clusters")
        except CliError as error:
            return DaemonFacts(client.server, str(error))
        replicas = tuple(
            ReplicaFacts(one.name, seen.place, seen.presence, seen.age_s, seen.why)
            for one in view.items
            for seen in one.replicas
            if seen.presence is not None
        )
        catalog = _catalog(view.catalog) if view.catalog is not None else None
        ghosts = tuple(GhostFacts(c.name, g.kind, g.name, g.text) for c in fleet.items for g in c.ghosts)
        return DaemonFacts(client.server, "", _leads(client), catalog, replicas, ghosts)


def _leads(client: Client) -> bool | None:
    """None where it cannot be said: a daemon that is ill answers no health."""
    try:
        health, _ = client.get(HealthView, "/healthz")
    except CliError:
        return None
    return health.leader.leading if health.leader is not None else True


def _catalog(view: CatalogView) -> CatalogFacts:
    return CatalogFacts(view.standing, view.age_s, view.trouble)
