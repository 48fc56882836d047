"""Real clusters behind the core's ports. `connect_hub` and `connect_worker` are the whole public face.

Nothing is read or connected before `check_ready` or `run`: making these objects has no effect on the world.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from connectors.kubernetes.client import ApiClient
from connectors.kubernetes.credentials import (
    FileSource,
    GetSecret,
    InClusterSource,
    NoSource,
    SecretSource,
    Source,
    key_of,
    token_of,
)
from connectors.kubernetes.feed import FeedSettings
from connectors.kubernetes.hub import KubernetesHub
from connectors.kubernetes.lease import NAMESPACE, KubernetesLease
from connectors.kubernetes.watch import Observer, WatchSettings
from connectors.kubernetes.worker import KubernetesWorker
from dispatcher.core.ids import ClusterName
from dispatcher.core.policy import Credentials
from dispatcher.core.ports import Clock
from dispatcher.core.writing import WriteMode

__all__ = [
    "GetSecret",
    "KubernetesHub",
    "KubernetesLease",
    "KubernetesWorker",
    "Observer",
    "connect_hub",
    "connect_hub_client",
    "connect_lease",
    "connect_worker",
    "feed_settings",
    "key_of",
    "source_of",
    "token_of",
]

HUB_PAGE_OBJECTS = 500
"""There is one hub, so its pages may be larger than those of tens of workers: fewer of them cost its server less."""


def connect_hub(
    kubeconfig: Path | None,
    clock: Clock,
    *,
    silence_limit_s: float = 60.0,
    observer: Observer | None = None,
    write_mode: WriteMode | None = None,
) -> KubernetesHub:
    """The hub, by a kubeconfig file, or (None) by the service account of the pod that we run in.

    `write_mode` None = `check_ready` chooses the best that the hub allows.
    """
    client, settings = connect_hub_client(kubeconfig, clock), feed_settings(silence_limit_s)
    settings = replace(settings, watch=replace(settings.watch, page_objects=HUB_PAGE_OBJECTS))
    return KubernetesHub(client, clock, settings, observer, write_mode)


def connect_hub_client(kubeconfig: Path | None, clock: Clock) -> ApiClient:
    """A bare client of the hub, as `connect_hub` has one: for who asks once and goes."""
    source: Source
    if kubeconfig is not None:
        source = FileSource(kubeconfig)
    else:
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "")
        source = InClusterSource(host, port)
    return ApiClient("hub", source, clock)


def connect_lease(kubeconfig: Path | None, clock: Clock, *, deadline_s: float) -> KubernetesLease:
    """The Lease of the replicas, by a client of its own; in the namespace of the pod that we run in."""
    found = os.environ.get("POD_NAMESPACE") or (_own_namespace() if kubeconfig is None else "")
    return KubernetesLease(connect_hub_client(kubeconfig, clock), found or NAMESPACE, deadline_s=deadline_s)


def _own_namespace() -> str:
    try:
        return Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace").read_text().strip()
    except OSError:
        return ""


def connect_worker(
    name: ClusterName,
    credentials: Credentials,
    hub: KubernetesHub,
    clock: Clock,
    *,
    silence_limit_s: float = 60.0,
    observer: Observer | None = None,
) -> KubernetesWorker:
    """A worker, by the kubeconfig that its blueprint entry names: a Secret of the hub, or a file."""
    client = ApiClient(str(name), source_of(credentials, hub.get_secret), clock, turns=hub.turns)
    return KubernetesWorker(name, client, clock, feed_settings(silence_limit_s), observer)


def feed_settings(silence_limit_s: float) -> FeedSettings:
    """Settings for a policy that calls a cluster stale after `silence_limit_s`.

    The heartbeat comes at least three times within that limit, so one lost answer does not make a cluster stale. A
    watch whose connection died is given up within the limit, however well the heartbeat's own connection does: nothing
    is called fresh for longer than the policy allows.
    """
    beat_s = min(10.0, silence_limit_s / 3)
    watch = WatchSettings(turn_s=min(30.0, silence_limit_s / 2), silence_s=min(45.0, silence_limit_s * 0.75))
    return FeedSettings(watch=watch, heartbeat_s=beat_s, heartbeat_deadline_s=beat_s)


def source_of(credentials: Credentials, get_secret: GetSecret) -> Source:
    """Where a worker's access comes from: a Secret of the hub that `get_secret` reads, or a file."""
    if credentials.file is not None:
        return FileSource(Path(credentials.file))
    if credentials.secret_namespace and credentials.secret_name:
        return SecretSource(get_secret, credentials.secret_namespace, credentials.secret_name, credentials.secret_key)
    return NoSource("the blueprint names no credentials for this cluster: set credentials.secret or credentials.file")
