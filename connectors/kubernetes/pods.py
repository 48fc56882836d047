"""What one pod asks of a node, by the API's rule: containers run together, init containers one after another.

The rule is Kubernetes' own (documentation "Init Containers: resource sharing within containers" and "Pod Overhead"):
the larger of the containers' sum and of each init step, where sidecars (init containers that restart always) stay on
and count from their place on; pod-level requests replace the computed ones; overhead comes on top.
"""

from __future__ import annotations

from connectors.kubernetes.fields import Raw, child, children, resources
from dispatcher.core.resources import NOTHING, Resources


def pod_requests(spec: Raw) -> Resources:
    """Requests of one pod; a limit stands in where the request is absent, as the API defaults it.

    Raises:
        QuantityError: a quantity cannot be read; names the resource.
    """
    running = _together(spec)
    peak = _init_peak(spec)
    computed = _largest(running, peak)
    stated = _requests(child(spec, "resources"))
    asked = Resources.of({**dict(computed), **dict(stated)}) if stated.items else computed
    overhead = child(spec, "overhead")
    return asked.plus(resources(overhead)) if overhead else asked


def _requests(stated: Raw) -> Resources:
    requests, limits = child(stated, "requests"), child(stated, "limits")
    if not limits:
        return resources(requests)
    return resources({**limits, **requests})


def _is_sidecar(container: Raw) -> bool:
    return container.get("restartPolicy") == "Always"


def _together(spec: Raw) -> Resources:
    """All containers and all sidecars at once: what the pod holds for most of its life."""
    containers = [_requests(child(c, "resources")) for c in children(spec, "containers")]
    sidecars = [_requests(child(c, "resources")) for c in children(spec, "initContainers") if _is_sidecar(c)]
    parts = containers + sidecars
    return parts[0] if len(parts) == 1 else Resources.total(parts)


def _init_peak(spec: Raw) -> Resources:
    """The largest moment while init containers run: each one beside the sidecars that were started before it."""
    started, peak = NOTHING, NOTHING
    for container in children(spec, "initContainers"):
        asked = _requests(child(container, "resources"))
        if _is_sidecar(container):
            started = started.plus(asked)
            peak = _largest(peak, started)
        else:
            peak = _largest(peak, started.plus(asked))
    return peak


def _largest(one: Resources, other: Resources) -> Resources:
    if not other.items:
        return one
    amounts = dict(one.items)
    for name, value in other.items:
        amounts[name] = max(value, amounts.get(name, 0))
    return Resources.of(amounts)
