"""Test fleets give the daemon deploy's accounts: the pure parts of it."""

from __future__ import annotations

from pathlib import Path

import yaml

from connectors.kubernetes.kubeconfig import parse
from tests.fleet import manifests, rbac, sample
from tests.fleet.kind import render
from tests.unit.deploy_files import grants
from tests.unit.deploy_files import manifests as deployed

NAMES = sample.worker_names(2)


def test_a_fleet_applies_the_files_of_deploy_with_its_own_workers_names() -> None:
    applied = {(m["kind"], m["metadata"]["name"]): m for m in rbac.hub_manifests(NAMES)}
    role = applied.pop(("Role", rbac.WORKER_ACCESS))
    files = {(m["kind"], m["metadata"]["name"]): m for m in (*deployed("hub"), *deployed("any-hub"))}
    assert {key: files[key] for key in applied} == applied
    assert {key for key in files if "Role" in key[0] or key[0] == "ServiceAccount"} <= {
        *applied,
        ("Role", rbac.WORKER_ACCESS),
    }
    assert [g.name for g in grants(role)] == ["worker-1-entrepot", "worker-2-entrepot"]
    assert rbac.worker_manifests() == list(deployed("worker"))


def test_one_fleets_names_do_not_reach_the_next() -> None:
    rbac.hub_manifests(["somewhere"])
    found = rbac.hub_manifests(NAMES)
    assert "somewhere-entrepot" not in yaml.safe_dump(found)


def test_kind_applies_both_accounts_and_a_secret_for_each_worker(tmp_path: Path) -> None:
    steps = render.up_steps(tmp_path, sample.hub_objects(NAMES), sample.clusters(NAMES))
    assert [s.access_for_worker for s in steps if s.access_for_worker] == NAMES
    titles = [step.title for step in steps]
    assert titles.index("hub: the daemon's account") < titles.index("hub: the daemon's kubeconfig of worker-1")
    reader = next(s for s in steps if s.title == "worker-1: the daemon's read-only account")
    assert {m["kind"] for m in yaml.safe_load_all(reader.stdin)} == {m["kind"] for m in deployed("worker")}


def test_the_administrators_kubeconfig_becomes_one_of_the_account_without_its_credentials() -> None:
    admin = manifests.kubeconfig("kind", "https://127.0.0.1:6443", "admin-token", b"-----BEGIN CERTIFICATE-----")
    found = render.as_account(admin, rbac.READER, "reader-token")
    assert "admin-token" not in yaml.safe_dump(found)
    access = parse(yaml.safe_dump(found).encode())
    assert (access.server, access.token) == ("https://127.0.0.1:6443", "reader-token")


def test_a_token_is_asked_for_the_account_in_its_namespace(tmp_path: Path) -> None:
    command = render.token_command(tmp_path, "worker-1", rbac.READER)
    assert command[-6:] == ["token", "entrepot-reader", "--namespace", "entrepot-system", "--duration", "604800s"]
