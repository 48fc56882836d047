"""Lists the Kueue objects of a cluster as they stand there, for `blueprint diff`. Reads once, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from connectors.kubernetes.client import JSON, METADATA_LIST, ApiClient
from connectors.kubernetes.faults import NotFound, Unauthorized
from connectors.kubernetes.fields import Raw, child, children, text
from dispatcher.core.errors import Refused

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
_PAGE = "500"
_MOST_PAGES = 200

_PATHS: dict[str, str] = {
    "Namespace": "/api/v1/namespaces",
    "ResourceFlavor": f"{KUEUE}/resourceflavors",
    "Cohort": f"{KUEUE}/cohorts",
    "ClusterQueue": f"{KUEUE}/clusterqueues",
    "LocalQueue": f"{KUEUE}/localqueues",
    "WorkloadPriorityClass": f"{KUEUE}/workloadpriorityclasses",
    "AdmissionCheck": f"{KUEUE}/admissionchecks",
    "MultiKueueConfig": f"{KUEUE}/multikueueconfigs",
    "MultiKueueCluster": f"{KUEUE}/multikueueclusters",
}


@dataclass(frozen=True, slots=True)
class SeenObjects:
    """`unread`: kinds that the account may not list, or that the cluster does not serve, with the reason."""

    objects: tuple[Raw, ...]
    unread: tuple[tuple[str, str], ...] = ()


async def list_objects(client: ApiClient, kinds: Iterable[str]) -> SeenObjects:
    """All objects of these kinds, each with its `kind` (items of a list do not say theirs).

    Raises:
        Transient: the cluster cannot be reached.
        Unauthorized: it does not take our credentials.
        BadKubeconfig: they must not be used, or there are none.
    """
    found: list[Raw] = []
    unread: list[tuple[str, str]] = []
    for kind in kinds:
        try:
            found += await _list(client, kind)
        except Unauthorized:
            raise
        except NotFound:
            unread.append((kind, "not served: is Kueue installed?"))
        except Refused as error:
            if client.problem is not None:
                raise
            unread.append((kind, f"may not be listed: {error}"))
    return SeenObjects(tuple(found), tuple(unread))


async def _list(client: ApiClient, kind: str) -> list[Raw]:
    params = {"limit": _PAGE}
    found: list[Raw] = []
    for _ in range(_MOST_PAGES):
        # Of a Namespace only the name counts.
        page = await client.page(_PATHS[kind], params, METADATA_LIST if kind == "Namespace" else JSON)
        found += [{**item, "kind": kind} for item in children(page, "items")]
        more = text(child(page, "metadata"), "continue")
        if not more:
            return found
        params["continue"] = more
    raise Refused(f"there are more than {_MOST_PAGES * int(_PAGE)} of them")
