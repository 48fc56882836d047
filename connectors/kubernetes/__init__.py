"""Real clusters behind the core's ports. `connect_hub` and `connect_worker` are the whole public face.

Nothing is read or connected before `check_ready` or `run`: making these objects has no effect on the world.
"""

from __future__ import annotations

import os
from pathlib import Path

from connectors.kubernetes.client import ApiClient
from connectors.kubernetes.credentials import FileSource, InClusterSource, NoSource, SecretSource, Source
from connectors.kubernetes.feed import FeedSettings
from connectors.kubernetes.hub import KubernetesHub
from connectors.kubernetes.watch import Observer, WatchSettings
from connectors.kubernetes.worker import KubernetesWorker
from dispatcher.core.ids import ClusterName
from dispatcher.core.policy import Credentials
from dispatcher.core.ports import Clock

__all__ = ["KubernetesHub", "KubernetesWorker", "Observer", "connect_hub", "connect_worker", "feed_settings"]


def connect_hub(
    kubeconfig: Path | None, clock: Clock, *, silence_limit_s: float = 60.0, observer: Observer | None = None
) -> KubernetesHub:
    """The hub, by a kubeconfig file, or (None) by the service account of the pod that we run in."""
    source: Source
    if kubeconfig is not None:
        source = FileSource(kubeconfig)
    else:
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "")
        source = InClusterSource(host, port)
    return KubernetesHub(ApiClient("hub", source, clock), clock, feed_settings(silence_limit_s), observer)


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
    client = ApiClient(str(name), _source(credentials, hub), clock)
    return KubernetesWorker(name, client, clock, feed_settings(silence_limit_s), observer)


def feed_settings(silence_limit_s: float) -> FeedSettings:
    """Settings for a policy that calls a cluster stale after `silence_limit_s`.

    The heartbeat comes at least three times within that limit, so one lost answer does not make a cluster stale. A
    watch may be silent for longer than the limit, since bookmarks come once a minute: never less than 90 s.
    """
    beat_s = min(10.0, silence_limit_s / 3)
    return FeedSettings(
        watch=WatchSettings(silence_s=max(90.0, silence_limit_s)), heartbeat_s=beat_s, heartbeat_deadline_s=beat_s
    )


def _source(credentials: Credentials, hub: KubernetesHub) -> Source:
    if credentials.file is not None:
        return FileSource(Path(credentials.file))
    if credentials.secret_namespace and credentials.secret_name:
        return SecretSource(
            hub.get_secret, credentials.secret_namespace, credentials.secret_name, credentials.secret_key
        )
    return NoSource("the blueprint names no credentials for this cluster: set credentials.secret or credentials.file")
