"""`deploy/` holds together: what is granted is what the code asks for, the pod is confined, names meet."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import typer
import yaml

from connectors.kubernetes import KubernetesHub, KubernetesWorker
from connectors.kubernetes.client import ApiClient
from connectors.kubernetes.credentials import NoSource
from connectors.kubernetes.preflight import NEEDED, Permission
from dispatcher.cli.main import build
from dispatcher.core.ids import ClusterName
from dispatcher.runtime import SystemClock
from tests.unit.deploy_files import DEPLOY, ROOT, Grant, documents, grants, listed, manifests, one, roles

FOLDERS = ("hub", "worker", "frameworks", "any-hub", "interactive", "worker-stop", "data-access", "monitoring")
OVERLAYS = ("overlays/single", "overlays/replicas")
LABELS = {"app.kubernetes.io/name": "entrepot"}
HUB_ROLE = one("hub", "ClusterRole")
READER = one("worker", "ClusterRole")
POD = one("hub", "Deployment")["spec"]["template"]
CONTAINER = POD["spec"]["containers"][0]


def watched(port: Any) -> set[tuple[str, str]]:
    """(group, resource) of every kind that a hub or worker connection lists and watches."""
    found = set()
    for informer in port._feed._informers:
        parts = informer.kind.path.strip("/").split("/")
        found.add((parts[1] if parts[0] == "apis" else "", parts[-1]))
    return found


def hub_kinds() -> set[tuple[str, str]]:
    clock = SystemClock()
    return watched(KubernetesHub(ApiClient("hub", NoSource("none"), clock), clock))


def worker_kinds() -> set[tuple[str, str]]:
    clock = SystemClock()
    return watched(KubernetesWorker(ClusterName("worker"), ApiClient("worker", NoSource("none"), clock), clock))


# --- files -------------------------------------------------------------------------------------------------------


def test_every_manifest_is_listed_by_a_kustomization() -> None:
    """A file that nobody lists is installed nowhere, and nobody notices."""
    used = {path for folder in (*FOLDERS, *OVERLAYS, "trusted-keys", "data-files") for path in listed(folder)}
    present = {path for path in DEPLOY.rglob("*.yaml") if path.name != "kustomization.yaml"}
    assert present == used


def test_the_trusted_keys_are_mounted_where_the_daemon_is_told_to_look() -> None:
    pod = one("trusted-keys", "Deployment")["spec"]["template"]["spec"]
    container = pod["containers"][0]
    (mount,) = container["volumeMounts"]
    assert {entry["name"]: entry["value"] for entry in container["env"]} == {
        "ENTREPOT_TRUSTED_KEYS": mount["mountPath"]
    }
    assert mount["readOnly"] is True
    assert [volume["name"] for volume in pod["volumes"]] == [mount["name"]]
    assert "optional" not in pod["volumes"][0]["configMap"], "without its keys the daemon must not start unasked"


def test_keys_of_data_are_mounted_as_files_beside_what_the_pod_has_and_cost_no_start() -> None:
    """The patch as kustomize merges it: by the container's name, lists of mounts and volumes one after the other."""
    pod = one("data-files", "Deployment")["spec"]["template"]["spec"]
    (container,), (volume,) = pod["containers"], pod["volumes"]
    (mount,) = container["volumeMounts"]
    assert container["name"] == CONTAINER["name"]
    assert one("data-files", "Deployment")["metadata"] == {"name": "entrepot", "namespace": "entrepot-system"}
    assert mount["name"] == volume["name"]
    assert mount["name"] not in {each["name"] for each in POD["spec"]["volumes"]}
    assert mount["mountPath"] not in {each["mountPath"] for each in CONTAINER["volumeMounts"]}
    assert mount["readOnly"] is True
    assert volume["secret"]["optional"] is True
    assert volume["secret"]["defaultMode"] == 0o440, "the group of the pod reads it, and nobody else"


def test_the_secrets_of_data_are_read_by_name_and_are_those_of_the_page() -> None:
    role = one("data-access", "Role")
    found = set(grants(role))
    page = (ROOT / "docs" / "data.md").read_text()
    assert {(g.verb, g.group, g.resource) for g in found} == {("get", "", "secrets")}
    assert role["metadata"]["namespace"] == "entrepot-system"
    named = set(re.findall(r"secret: (?:entrepot-system)/([a-z-]+)", page))
    assert {g.name for g in found} == named
    assert all(f"create secret generic {name} " in page for name in named)


@pytest.mark.parametrize("folder", ["hub", "worker"])
def test_everything_namespaced_is_in_the_namespace_that_is_made(folder: str) -> None:
    namespace = one(folder, "Namespace")["metadata"]["name"]
    inside = {m["metadata"].get("namespace", namespace) for m in manifests(folder)}
    assert inside == {namespace}


# --- permissions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", FOLDERS[:7])
def test_no_role_uses_a_wildcard(folder: str) -> None:
    assert roles(folder)
    for role in roles(folder):
        assert [g for g in grants(role) if "*" in (g.verb, g.group, g.resource)] == []


@pytest.mark.parametrize("needed", NEEDED, ids=lambda p: p.words)
def test_what_start_up_asks_for_is_granted(needed: Permission) -> None:
    assert Grant(needed.verb, needed.group, needed.rule_resource, needed.name) in set(grants(HUB_ROLE))


def test_the_hub_role_lists_and_watches_what_the_daemon_does_and_nothing_else() -> None:
    allowed = {verb: {(g.group, g.resource) for g in grants(HUB_ROLE) if g.verb == verb} for verb in ("list", "watch")}
    assert allowed["watch"] == hub_kinds()
    assert allowed["list"] == hub_kinds() | {("admissionregistration.k8s.io", "mutatingadmissionpolicybindings")}


def test_the_worker_role_lists_and_watches_what_the_daemon_does_and_nothing_else() -> None:
    expected = {Grant(verb, group, resource) for group, resource in worker_kinds() for verb in ("list", "watch")}
    assert set(grants(READER)) == expected


def test_stopping_a_copy_is_a_role_of_its_own_with_one_verb() -> None:
    """ADR 22: whoever does not apply deploy/worker-stop has a daemon that can change nothing on a worker."""
    assert set(grants(one("worker-stop", "ClusterRole"))) == {Grant("patch", "kueue.x-k8s.io", "workloads")}
    (subject,) = one("worker-stop", "ClusterRoleBinding")["subjects"]
    account = one("worker", "ServiceAccount")["metadata"]
    assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])


def test_the_only_writes_are_nominations_events_reviews_of_ourselves_and_the_lease() -> None:
    every = {g for role in roles("hub") for g in grants(role)}
    writes = {(g.verb, g.group, g.resource) for g in every if g.verb not in ("get", "list", "watch")}
    assert writes == {
        ("patch", "kueue.x-k8s.io", "workloads/status"),
        ("create", "", "events"),
        ("patch", "", "events"),
        ("create", "authorization.k8s.io", "selfsubjectaccessreviews"),
        ("create", "coordination.k8s.io", "leases"),
        ("update", "coordination.k8s.io", "leases"),
        ("patch", "coordination.k8s.io", "leases"),
    }


def test_secrets_are_read_by_name_in_our_own_namespace_only() -> None:
    found = [(role, g) for role in roles("hub") for g in grants(role) if g.resource == "secrets"]
    assert found
    for role, grant in found:
        assert (role["kind"], role["metadata"]["namespace"], grant.verb) == ("Role", "entrepot-system", "get")
        assert grant.name


def test_the_names_of_the_secrets_are_those_of_the_example_blueprint() -> None:
    clusters = yaml.safe_load((ROOT / "config" / "fleet.yaml").read_text())["clusters"]
    in_blueprint = {cluster["credentials"]["secret"] for cluster in clusters.values()}
    role = one("hub", "Role", "entrepot-worker-access")
    assert {f"{role['metadata']['namespace']}/{g.name}" for g in grants(role)} == in_blueprint


def test_the_lease_is_written_by_name() -> None:
    lease = [g for g in grants(one("hub", "Role", "entrepot-leader")) if g.verb != "create"]
    assert {g.name for g in lease} == {"entrepot"}


@pytest.mark.parametrize("folder", FOLDERS[:7])
def test_every_role_is_bound_to_our_account_and_to_nobody_else(folder: str) -> None:
    account = one("worker" if folder in ("worker", "worker-stop") else "hub", "ServiceAccount")["metadata"]
    bindings = [m for m in manifests(folder) if m["kind"] in ("RoleBinding", "ClusterRoleBinding")]
    bound = {(b["roleRef"]["kind"], b["roleRef"]["name"]) for b in bindings}
    assert bound == {(r["kind"], r["metadata"]["name"]) for r in roles(folder)}
    for binding in bindings:
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
        ]


def test_a_probe_is_made_in_our_own_namespace_and_only_it_is_deleted() -> None:
    role = one("any-hub", "Role")
    assert role["metadata"]["namespace"] == "entrepot-system"
    assert [(g.verb, g.resource, g.name) for g in grants(role)] == [
        ("create", "workloads", ""),
        ("delete", "workloads", "entrepot-probe"),
    ]


def test_further_kinds_of_jobs_are_only_looked_at() -> None:
    assert {g.verb for g in grants(one("frameworks", "ClusterRole"))} == {"list", "watch"}


# --- the pod -----------------------------------------------------------------------------------------------------


def test_the_pod_runs_as_nobody_without_any_privilege() -> None:
    pod, own = POD["spec"]["securityContext"], CONTAINER["securityContext"]
    assert pod["runAsNonRoot"] is True
    assert pod["runAsUser"] > 0
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert own == {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(POD["spec"])


def test_the_namespace_enforces_the_restricted_profile() -> None:
    labels = one("hub", "Namespace")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def test_only_a_temporary_folder_is_writable() -> None:
    kinds = {volume["name"]: set(volume) - {"name"} for volume in POD["spec"]["volumes"]}
    writable = {m["name"] for m in CONTAINER["volumeMounts"] if not m.get("readOnly")}
    assert {name: kinds[name] for name in writable} == {"tmp": {"emptyDir"}}


def test_the_blueprint_is_mounted_as_a_folder_so_that_edits_arrive() -> None:
    """A ConfigMap mounted by subPath never changes while the pod lives (FR-CFG-06)."""
    mount = next(m for m in CONTAINER["volumeMounts"] if m["name"] == "blueprint")
    assert "subPath" not in mount
    assert f"--blueprint={mount['mountPath']}" in CONTAINER["args"]


def test_the_arguments_are_those_of_the_command_line() -> None:
    command, *rest = CONTAINER["args"]
    serve = typer.main.get_command(build()).commands[command]  # type: ignore[attr-defined]
    parsed = serve.make_context("entrepot", list(rest)).params
    assert parsed["listen"] == "0.0.0.0:8383"
    assert parsed["kubeconfig"] is None, "the pod uses its own service account"
    known = {variable for option in serve.params for variable in [option.envvar] if variable}
    assert {variable["name"] for variable in CONTAINER["env"]} <= known


def test_probes_ask_what_the_api_answers() -> None:
    paths = set(json.loads((ROOT / "docs" / "openapi.json").read_text())["paths"])
    asked = {probe: CONTAINER[probe]["httpGet"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {get["port"] for get in asked.values()} == {"http"}
    assert {probe: get["path"] for probe, get in asked.items()} == {
        "startupProbe": "/healthz",
        "livenessProbe": "/healthz",
        "readinessProbe": "/readyz",
    }
    assert {get["path"] for get in asked.values()} <= paths


def test_two_replicas_one_always_up_on_different_nodes() -> None:
    deployment, budget = one("hub", "Deployment"), one("hub", "PodDisruptionBudget")
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert budget["spec"]["minAvailable"] == 1
    assert POD["spec"]["topologySpreadConstraints"][0]["topologyKey"] == "kubernetes.io/hostname"


def test_every_selector_finds_the_pod() -> None:
    assert POD["metadata"]["labels"] == LABELS
    assert one("hub", "Deployment")["spec"]["selector"]["matchLabels"] == LABELS
    assert one("hub", "Service")["spec"]["selector"] == LABELS
    assert one("hub", "PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == LABELS
    assert one("hub", "NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == LABELS
    assert one("monitoring", "PodMonitor")["spec"]["selector"]["matchLabels"] == LABELS
    assert POD["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"] == LABELS
    assert POD["spec"]["serviceAccountName"] == one("hub", "ServiceAccount")["metadata"]["name"]


def test_everybody_means_the_same_port() -> None:
    port = CONTAINER["ports"][0]
    assert f"--listen=0.0.0.0:{port['containerPort']}" in CONTAINER["args"]
    service = one("hub", "Service")["spec"]["ports"][0]
    assert (service["port"], service["targetPort"]) == (port["containerPort"], port["name"])
    assert one("hub", "NetworkPolicy")["spec"]["ingress"][0]["ports"] == [{"protocol": "TCP", "port": port["name"]}]
    assert one("monitoring", "PodMonitor")["spec"]["podMetricsEndpoints"][0]["port"] == port["name"]


def test_nothing_from_outside_reaches_the_pod_but_monitoring() -> None:
    policy = one("hub", "NetworkPolicy")["spec"]
    assert sorted(policy["policyTypes"]) == ["Egress", "Ingress"]
    sources = [source for rule in policy["ingress"] for source in rule["from"]]
    namespaces = [s["namespaceSelector"]["matchLabels"] for s in sources if "namespaceSelector" in s]
    assert namespaces == [{"kubernetes.io/metadata.name": "monitoring"}]
    assert [s for s in sources if "namespaceSelector" not in s] == [{"podSelector": {}}], "our own namespace"


# --- the overlay for one replica ---------------------------------------------------------------------------------


def test_a_single_replica_never_shares_its_volume() -> None:
    patch = documents(DEPLOY / "overlays/single/one-replica.yaml")[0]["spec"]
    store = documents(DEPLOY / "overlays/single/store.yaml")[0]
    assert (patch["replicas"], patch["strategy"]["type"]) == (1, "Recreate")
    volume = patch["template"]["spec"]["volumes"][0]
    assert volume["persistentVolumeClaim"]["claimName"] == store["metadata"]["name"]
    container = patch["template"]["spec"]["containers"][0]
    assert container["name"] == CONTAINER["name"]
    assert container["env"][0]["value"].startswith(container["volumeMounts"][0]["mountPath"] + "/")
