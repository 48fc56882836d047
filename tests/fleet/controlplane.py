"""Command lines of etcd and of a Kubernetes control plane on loopback.

One etcd serves every apiserver, each under a prefix of its own: three etcds would cost memory and teach nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.fleet.certificates import Certificates
from tests.fleet.processes import ProcessSpec

CONTROLLERS = (
    "namespace-controller",
    "job-controller",
    "garbage-collector-controller",
    "serviceaccount-controller",
    "node-lifecycle-controller",  # takes the not-ready taint off KWOK's nodes
    "ttl-after-finished-controller",
)


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """Where one cluster's parts listen, and where its files lie."""

    name: str
    folder: Path
    apiserver_port: int
    token: str

    @property
    def server_url(self) -> str:
        """The apiserver's address."""
        return f"https://127.0.0.1:{self.apiserver_port}"

    @property
    def kubeconfig_path(self) -> Path:
        """The administrator's kubeconfig, used by the cluster's controllers too."""
        return self.folder / "kubeconfig"

    @property
    def audit_policy_path(self) -> Path:
        """Which requests the apiserver writes down: AUDIT_POLICY."""
        return self.folder / "audit-policy.yaml"

    @property
    def token_path(self) -> Path:
        """The apiserver's list of tokens."""
        return self.folder / "tokens.csv"


AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
}
"""Only the daemon has ServiceAccounts here: its log says which of its permissions it uses (tests/fleet/rbac.py)."""


def child_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """A small environment: no proxy and no KUBECONFIG of the caller reaches the fleet's processes."""
    keep = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR", "LANG") if key in os.environ}
    return {**keep, "NO_PROXY": "127.0.0.1,localhost", **(extra or {})}


def etcd(binary: Path, data_folder: Path, client_port: int, peer_port: int) -> ProcessSpec:
    """The store. Without fsync: its data do not outlive the fleet."""
    client_url, peer_url = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
    argv = [
        str(binary),
        f"--data-dir={data_folder}",
        f"--listen-client-urls={client_url}",
        f"--advertise-client-urls={client_url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=default={peer_url}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]
    return ProcessSpec("etcd", argv, child_environment())


def apiserver(binary: Path, plane: ControlPlane, certificates: Certificates, etcd_port: int) -> ProcessSpec:
    """The apiserver, with tokens from a file and real RBAC."""
    argv = [
        str(binary),
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        f"--etcd-prefix=/{plane.name}",
        f"--secure-port={plane.apiserver_port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--tls-cert-file={certificates.serving_certificate}",
        f"--tls-private-key-file={certificates.serving_key}",
        f"--cert-dir={plane.folder}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={certificates.service_account_public_key}",
        f"--service-account-signing-key-file={certificates.service_account_key}",
        "--authorization-mode=RBAC",
        f"--token-auth-file={plane.token_path}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--disable-admission-plugins=ServiceAccount",
        "--endpoint-reconciler-type=none",
        f"--audit-policy-file={plane.audit_policy_path}",
        f"--audit-log-path={plane.folder / 'audit.log'}",
        "--audit-log-maxsize=50",
        "--audit-log-maxbackup=20",
    ]
    return ProcessSpec(f"{plane.name}-apiserver", argv, child_environment())


def controller_manager(binary: Path, plane: ControlPlane) -> ProcessSpec:
    """Jobs, garbage collection, namespaces and node taints; nothing else runs here."""
    argv = [
        str(binary),
        f"--kubeconfig={plane.kubeconfig_path}",
        f"--controllers={','.join(CONTROLLERS)}",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ]
    return ProcessSpec(f"{plane.name}-controller-manager", argv, child_environment())


def scheduler(binary: Path, plane: ControlPlane) -> ProcessSpec:
    """The scheduler; only workers have one, since the hub runs no pods."""
    argv = [
        str(binary),
        f"--kubeconfig={plane.kubeconfig_path}",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ]
    return ProcessSpec(f"{plane.name}-scheduler", argv, child_environment())
