"""JobSet's controller as a process; it must serve before Kueue starts, on the hub and on every worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.fleet import manifests
from tests.fleet.controlplane import ControlPlane, child_environment
from tests.fleet.processes import ProcessSpec


@dataclass(frozen=True, slots=True)
class JobSetPorts:
    """Where one JobSet controller listens on loopback."""

    webhook: int
    health: int


def configuration(certificate_folder: Path, ports: JobSetPorts) -> dict[str, Any]:
    """JobSet's configuration file."""
    return {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{ports.health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"port": ports.webhook, "host": "127.0.0.1", "certDir": str(certificate_folder)},
    }


def write_configuration(path: Path, content: Mapping[str, Any]) -> None:
    """Write a configuration file."""
    path.write_text(yaml.safe_dump(dict(content), sort_keys=False))


@dataclass(frozen=True, slots=True)
class JobSetData:
    """JobSet's manifests as the build cache holds them."""

    definitions: Sequence[Mapping[str, Any]]
    webhooks: Sequence[Mapping[str, Any]]

    @classmethod
    def load(cls, folder: Path) -> JobSetData:
        """Read the `data` folder of JobSet's cache entry."""
        return cls(manifests.load_folder(folder / "crd"), manifests.load_all(folder / "webhook" / "manifests.yaml"))

    def webhooks_for_loopback(self, webhook_port: int, ca_pem: bytes) -> list[dict[str, Any]]:
        """The webhook configurations of one cluster; the one for pods is dropped."""
        return manifests.localize_webhooks(self.webhooks, "jobset", webhook_port, ca_pem)


def process(binary: Path, plane: ControlPlane, config_path: Path) -> ProcessSpec:
    """JobSet's manager."""
    argv = [str(binary), f"--config={config_path}", f"--kubeconfig={plane.kubeconfig_path}"]
    return ProcessSpec(f"{plane.name}-jobset", argv, child_environment())
