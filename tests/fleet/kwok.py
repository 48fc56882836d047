"""KWOK: nodes without machines and pods without containers.

The stages here are this project's own, so that a pod can say how long it runs and whether it fails.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.fleet.controlplane import ControlPlane, child_environment
from tests.fleet.processes import ProcessSpec

DURATION_ANNOTATION = "entrepot.dev/simulated-duration"
OUTCOME_ANNOTATION = "entrepot.dev/simulated-outcome"
DEFAULT_DURATION_MILLISECONDS = 2000
HEARTBEAT_MILLISECONDS = 300_000
NODE_LEASE_SECONDS = 40

_ALIVE = {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"}

_NODE_READY = """\
{{ $now := Now }}
conditions:
{{ range NodeConditions }}
- type: {{ .type | Quote }}
  status: {{ .status | Quote }}
  reason: {{ .reason | Quote }}
  message: {{ .message | Quote }}
  lastHeartbeatTime: {{ $now | Quote }}
  lastTransitionTime: {{ $now | Quote }}
{{ end }}
addresses:
- type: InternalIP
  address: {{ NodeIP | Quote }}
- type: Hostname
  address: {{ .metadata.name | Quote }}
nodeInfo:
  architecture: amd64
  operatingSystem: linux
  bootID: ""
  containerRuntimeVersion: fake
  kernelVersion: fake
  kubeProxyVersion: fake
  kubeletVersion: fake
  machineID: ""
  osImage: fake
  systemUUID: ""
phase: Running
"""

_POD_RUNNING = """\
{{ $now := Now }}
phase: Running
startTime: {{ $now | Quote }}
conditions:
{{ range $type := list "Initialized" "Ready" "ContainersReady" }}
- type: {{ $type | Quote }}
  status: "True"
  lastTransitionTime: {{ $now | Quote }}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  started: true
  restartCount: 0
  state:
    running:
      startedAt: {{ $now | Quote }}
{{ end }}
"""

_POD_ENDED = """\
{{ $now := Now }}
{{ $started := or .status.startTime $now }}
phase: %(phase)s
conditions:
- type: Ready
  status: "False"
  reason: %(condition_reason)s
  lastTransitionTime: {{ $now | Quote }}
- type: ContainersReady
  status: "False"
  reason: %(condition_reason)s
  lastTransitionTime: {{ $now | Quote }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: false
  started: false
  restartCount: 0
  state:
    terminated:
      exitCode: %(exit_code)d
      reason: %(reason)s
      startedAt: {{ $started | Quote }}
      finishedAt: {{ $now | Quote }}
{{ end }}
"""


def stages() -> list[dict[str, Any]]:
    """Nodes are ready at once; pods run at once, end after their simulated duration, go at once when deleted."""
    succeeded = {"phase": "Succeeded", "condition_reason": "PodCompleted", "exit_code": 0, "reason": "Completed"}
    failed = {"phase": "Failed", "condition_reason": "PodFailed", "exit_code": 1, "reason": "Error"}
    ready = '.status.conditions.[] | select( .type == "Ready" ) | .status'
    return [
        _stage("node-ready", "Node", [{"key": ready, "operator": "NotIn", "values": ["True"]}], _NODE_READY),
        _stage(
            "node-heartbeat",
            "Node",
            [{"key": ready, "operator": "In", "values": ["True"]}],
            _NODE_READY,
            delay={"durationMilliseconds": HEARTBEAT_MILLISECONDS},
        ),
        _stage("pod-run", "Pod", [_ALIVE, _phase("Pending")], _POD_RUNNING),
        _ending("pod-succeed", "NotIn", _POD_ENDED % succeeded),
        _ending("pod-fail", "In", _POD_ENDED % failed),
        _stage("pod-delete", "Pod", [{**_ALIVE, "operator": "Exists"}], None),
    ]


def _phase(phase: str) -> dict[str, Any]:
    return {"key": ".status.phase", "operator": "In", "values": [phase]}


def _ending(name: str, operator: str, template: str) -> dict[str, Any]:
    """The end of a Job's pod; a pod of no Job runs until it is deleted, like a service."""
    outcome = f'.metadata.annotations["{OUTCOME_ANNOTATION}"]'
    duration = f'.metadata.annotations["{DURATION_ANNOTATION}"]'
    conditions = [
        _ALIVE,
        _phase("Running"),
        {"key": ".metadata.ownerReferences.[].kind", "operator": "In", "values": ["Job"]},
        {"key": outcome, "operator": operator, "values": ["failed"]},
    ]
    delay = {
        "durationMilliseconds": DEFAULT_DURATION_MILLISECONDS,
        "durationFrom": {"expressionFrom": duration},
    }
    return _stage(name, "Pod", conditions, template, delay=delay)


def _stage(
    name: str,
    kind: str,
    conditions: list[dict[str, Any]],
    template: str | None,
    delay: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A stage that writes a status by `template`, or that deletes the object where there is none."""
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": conditions},
            **({"delay": delay} if delay else {}),
            "next": {"delete": True} if template is None else {"statusTemplate": template},
        },
    }


def write_stages(path: Path) -> None:
    """Write the stages where `process` expects them."""
    path.write_text(yaml.safe_dump_all(stages(), sort_keys=False))


def process(binary: Path, plane: ControlPlane, stages_path: Path, server_port: int) -> ProcessSpec:
    """The controller that plays kubelet for every node of a worker."""
    argv = [
        str(binary),
        f"--kubeconfig={plane.kubeconfig_path}",
        f"--config={stages_path}",
        "--manage-all-nodes=true",
        f"--node-lease-duration-seconds={NODE_LEASE_SECONDS}",
        "--node-ip=127.0.0.1",
        f"--server-address=127.0.0.1:{server_port}",
    ]
    return ProcessSpec(f"{plane.name}-kwok", argv, child_environment())
