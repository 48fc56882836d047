"""Kueue as a process: its configuration, its CRDs and webhooks, and the hub's admission policy."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.fleet import manifests
from tests.fleet.certificates import Certificates
from tests.fleet.controlplane import ControlPlane, child_environment
from tests.fleet.processes import ProcessSpec

DISPATCHER_NAME = "entrepot.dev/dispatcher"
FRAMEWORKS = ("batch/job", "jobset.x-k8s.io/jobset")
METRICS_CERTIFICATE_FOLDER = Path("/etc/kueue/metrics/certs")  # fixed in Kueue, read even with metrics off
QUERIES_PER_SECOND = 200
QUERY_BURST = 400
GC_INTERVAL_SECONDS = 5
FEATURE_GATES = {"VisibilityOnDemand": False}
"""In the configuration file and not a flag, so that a restart can change them (`with_gates`)."""


@dataclass(frozen=True, slots=True)
class KueuePorts:
    """Where one Kueue listens on loopback."""

    webhook: int
    health: int


def configuration(
    certificate_folder: Path,
    ports: KueuePorts,
    frameworks: Sequence[str] = FRAMEWORKS,
    worker_lost_timeout_seconds: int | None = None,
) -> dict[str, Any]:
    """Kueue's configuration file. With a worker-lost timeout it is the hub's: Entrepot is named as dispatcher."""
    content: dict[str, Any] = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": "kueue-system",
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{ports.health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"port": ports.webhook, "host": "127.0.0.1", "certDir": str(certificate_folder)},
        "clientConnection": {"qps": QUERIES_PER_SECOND, "burst": QUERY_BURST},
        "integrations": {"frameworks": list(frameworks)},
        "featureGates": dict(FEATURE_GATES),
    }
    if worker_lost_timeout_seconds is not None:
        content["multiKueue"] = multikueue_configuration(worker_lost_timeout_seconds)
    return content


def multikueue_configuration(worker_lost_timeout_seconds: int) -> dict[str, Any]:
    """The hub's MultiKueue settings; the kind fleet uses the same."""
    return {
        "dispatcherName": DISPATCHER_NAME,
        "gcInterval": f"{GC_INTERVAL_SECONDS}s",
        "workerLostTimeout": f"{worker_lost_timeout_seconds}s",
    }


def write_configuration(path: Path, content: Mapping[str, Any]) -> None:
    """Write a configuration file."""
    path.write_text(yaml.safe_dump(dict(content), sort_keys=False))


def with_gates(path: Path, gates: Mapping[str, bool]) -> None:
    """Rewrite a configuration file with these feature gates beside the fleet's own; a restart puts them into force."""
    content = yaml.safe_load(path.read_text())
    write_configuration(path, {**content, "featureGates": {**FEATURE_GATES, **gates}})


@dataclass(frozen=True, slots=True)
class KueueData:
    """Kueue's manifests as the build cache holds them, parsed once for all clusters.

    A release without the clearing policy (0.17) has an empty `admission_policy`.
    """

    definitions: Sequence[Mapping[str, Any]]
    webhooks: Sequence[Mapping[str, Any]]
    admission_policy: Sequence[Mapping[str, Any]]

    @classmethod
    def load(cls, folder: Path) -> KueueData:
        """Read the `data` folder of Kueue's cache entry."""
        policy = folder / "map" / "manifests.yaml"
        return cls(
            manifests.load_folder(folder / "crd"),
            manifests.load_all(folder / "webhook" / "manifests.yaml"),
            manifests.load_all(policy) if policy.exists() else [],
        )

    def for_loopback(self, webhook_port: int, ca_pem: bytes) -> list[dict[str, Any]]:
        """The CRDs of one cluster, with conversion by its own Kueue."""
        return [manifests.with_conversion(item, webhook_port, ca_pem) for item in self.definitions]

    def webhooks_for_loopback(self, webhook_port: int, ca_pem: bytes) -> list[dict[str, Any]]:
        """The webhook configurations of one cluster."""
        return manifests.localize_webhooks(self.webhooks, "kueue", webhook_port, ca_pem)


def process(binary: Path, plane: ControlPlane, config_path: Path, certificates: Certificates) -> ProcessSpec:
    """Kueue's manager. Without root it gets a view of /etc of its own, for the fixed metrics path."""
    argv = [
        str(binary),
        f"--config={config_path}",
        f"--kubeconfig={plane.kubeconfig_path}",
        "--zap-log-level=2",
    ]
    if not _metrics_certificate_is_readable(certificates):
        etc = certificates.folder / "etc"
        _copy_metrics_certificate(certificates, etc / METRICS_CERTIFICATE_FOLDER.relative_to("/etc"))
        enclosed = Path(__file__).with_name("enclosed.py")
        argv = [sys.executable, "-I", str(enclosed), str(etc), *argv]
    return ProcessSpec(f"{plane.name}-kueue", argv, child_environment())


def _metrics_certificate_is_readable(certificates: Certificates) -> bool:
    """Whether the fixed path serves; as root it is made so. Any valid pair will do: metrics are off."""
    pair = [METRICS_CERTIFICATE_FOLDER / name for name in ("tls.crt", "tls.key")]
    if not all(os.access(path, os.R_OK) for path in pair) and os.geteuid() == 0:
        try:
            _copy_metrics_certificate(certificates, METRICS_CERTIFICATE_FOLDER)
        except OSError:  # a read-only /etc
            return False
    return all(os.access(path, os.R_OK) for path in pair)


def _copy_metrics_certificate(certificates: Certificates, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(certificates.serving_certificate, folder / "tls.crt")
    shutil.copy(certificates.serving_key, folder / "tls.key")
