"""Start-up checks: each thing that can be missing on a hub is named with its fix."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from connectors.kubernetes import connect_hub
from connectors.kubernetes.preflight import NEEDED, NOBODY, POLICY, Permission, policy_problem, rbac_rules
from connectors.kubernetes.write_modes import PROBE_NAMESPACE
from dispatcher.core.errors import Fatal, Transient
from dispatcher.core.writing import WriteMode
from tests.connectors.apiserver import KUEUE, ApiServer, Raw, always, named
from tests.connectors.support import EagerClock, kubeconfig, write

ADMISSION = "/apis/admissionregistration.k8s.io"
POLICIES, BINDINGS = f"{ADMISSION}/v1/mutatingadmissionpolicies", f"{ADMISSION}/v1/mutatingadmissionpolicybindings"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
SERVED = ("workloads", "admissionchecks", "multikueueconfigs", "multikueueclusters", "clusterqueues", "localqueues")


def policy() -> Raw:
    """The parts of Kueue's policy that make it work; the expression is shortened."""
    return {
        **named(POLICY),
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": ["kueue.x-k8s.io"],
                        "apiVersions": ["v1beta2"],
                        "operations": ["UPDATE"],
                        "resources": ["workloads", "workloads/status"],
                    }
                ]
            },
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "/status/nominatedClusterNames"}}],
        },
    }


def binding(**spec: object) -> Raw:
    return {**named("clear-binding"), "spec": {"policyName": POLICY, **spec}}


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with ApiServer("hub") as server:
        server.serve(POLICIES, BINDINGS)
        server.put(POLICIES, policy())
        server.put(BINDINGS, binding(matchResources={"matchPolicy": "Equivalent", "namespaceSelector": {}}))
        server.extra[f"{KUEUE}"] = {
            "resources": [{"name": name, "kind": "X"} for name in (*SERVED, "workloads/status")]
        }
        allow(server)
        yield server


def allow(api: ApiServer, *denied: Permission) -> None:
    async def review(request: web.Request) -> web.StreamResponse | None:
        asked = (await request.json())["spec"]["resourceAttributes"]
        refused = any(
            asked
            == {"verb": p.verb, "group": p.group, "resource": p.resource}
            | ({"subresource": p.subresource} if p.subresource else {})
            for p in denied
        )
        return web.json_response({"status": {"allowed": not refused}}, status=201)

    api.faults["POST", REVIEWS] = review


async def check(api: ApiServer, path: Path, content: bytes | None = None, wanted: WriteMode | None = None) -> WriteMode:
    """The mode that start-up settles for."""
    hub = connect_hub(write(path / "config", content or api.kubeconfig()), EagerClock(), write_mode=wanted)
    try:
        await hub.check_ready()
        return hub.write_mode
    finally:
        await hub.close()


async def refusal(api: ApiServer, path: Path, content: bytes | None = None, wanted: WriteMode | None = None) -> Fatal:
    with pytest.raises(Fatal) as caught:
        await check(api, path, content, wanted)
    assert caught.value.fix
    return caught.value


async def test_a_hub_that_has_everything_is_ready(api: ApiServer, tmp_path: Path) -> None:
    assert await check(api, tmp_path) is WriteMode.CLEARING_POLICY
    assert len(api.requests("POST", REVIEWS)) == len(NEEDED)
    assert len(api.requests("POST")) == len(NEEDED), "a policy that is seen needs no probe"
    writes = [s for s in api.seen if s.method in ("PATCH", "PUT", "DELETE") and s.query.get("dryRun") != "All"]
    assert writes == [], "looking changes nothing"


async def test_a_policy_of_1_35_in_v1beta1_will_do(api: ApiServer, tmp_path: Path) -> None:
    for path in (POLICIES, BINDINGS):
        api.collections[path.replace("/v1/", "/v1beta1/")] = api.collections.pop(path)
    await check(api, tmp_path)


async def test_the_policy_asked_for_and_missing_names_the_manifest_to_apply(api: ApiServer, tmp_path: Path) -> None:
    api.delete(POLICIES, POLICY)
    error = await refusal(api, tmp_path, wanted=WriteMode.CLEARING_POLICY)
    assert "could never clear a nomination" in str(error)
    assert "config/components/map/manifests.yaml" in error.fix
    assert "enableMutatingAdmissionPolicy" in error.fix


@pytest.mark.parametrize(
    ("bindings", "said"),
    [
        ([], "has no MutatingAdmissionPolicyBinding"),
        ([binding(policyName="another")], "has no MutatingAdmissionPolicyBinding"),
        ([binding(matchResources={"namespaceSelector": {"matchLabels": {"a": "b"}}})], "not in force everywhere"),
    ],
    ids=["no binding", "a binding of another policy", "a binding for some namespaces"],
)
async def test_a_policy_that_is_not_in_force(api: ApiServer, tmp_path: Path, bindings: list[Raw], said: str) -> None:
    api.collections[BINDINGS].clear()
    for raw in bindings:
        api.put(BINDINGS, raw)
    assert said in str(await refusal(api, tmp_path, wanted=WriteMode.CLEARING_POLICY))
    assert await check(api, tmp_path) is WriteMode.FULL_REPLICA


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("apiGroups", ["batch"]),
        ("apiVersions", ["v1beta1"]),
        ("operations", ["CREATE"]),
        ("resources", ["workloads"]),
    ],
)
def test_a_policy_that_does_not_match_our_write_is_found_out(key: str, value: list[str]) -> None:
    changed = copy.deepcopy(policy())
    changed["spec"]["matchConstraints"]["resourceRules"][0][key] = value
    assert policy_problem(policy()) is None
    assert "does not match" in str(policy_problem(changed))


def test_a_policy_of_that_name_with_another_purpose_is_found_out() -> None:
    changed = copy.deepcopy(policy())
    changed["spec"]["mutations"][0]["jsonPatch"]["expression"] = "/metadata/labels"
    assert "does not change" in str(policy_problem(changed))


async def test_missing_permissions_come_with_the_rules_to_add(api: ApiServer, tmp_path: Path) -> None:
    allow(api, Permission("patch", "kueue.x-k8s.io", "workloads", "status"), Permission("create", "", "events"))
    error = await refusal(api, tmp_path)
    assert "patch workloads/status, create events" in str(error)
    rules = yaml.safe_load(error.fix.split(": ", 1)[1])
    assert rules == [
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads/status"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
    ]


def test_rules_join_the_verbs_of_a_resource() -> None:
    rules = yaml.safe_load(rbac_rules([Permission("list", "batch", "jobs"), Permission("watch", "batch", "jobs")]))
    assert rules == [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list", "watch"]}]


async def test_an_old_kubernetes_is_named(api: ApiServer, tmp_path: Path) -> None:
    api.extra["/version"] = {"major": "1", "minor": "34+", "gitVersion": "v1.34.2-eks"}
    assert "v1.34.2-eks" in str(await refusal(api, tmp_path))


async def test_no_kueue(api: ApiServer, tmp_path: Path) -> None:
    del api.extra[KUEUE]
    assert "kueue.x-k8s.io/v1beta2" in str(await refusal(api, tmp_path))


async def test_a_kueue_without_multikueue(api: ApiServer, tmp_path: Path) -> None:
    api.extra[KUEUE] = {"resources": [{"name": "workloads"}, {"name": "workloads/status"}]}
    assert "multikueueclusters" in str(await refusal(api, tmp_path))


@pytest.mark.parametrize("status", [401, 403])
async def test_a_hub_that_refuses_us_is_fatal(api: ApiServer, tmp_path: Path, status: int) -> None:
    api.faults["GET", "/version"] = always(status, "who are you")
    assert "who are you" in str(await refusal(api, tmp_path))


async def test_fr_nom_09_a_patch_type_that_is_not_taken_is_fatal_at_start(api: ApiServer, tmp_path: Path) -> None:
    api.faults["PATCH", f"{KUEUE}/namespaces/{PROBE_NAMESPACE}/workloads/{NOBODY}/status"] = always(
        415, "the body of the request was in an unknown format"
    )
    found = await refusal(api, tmp_path)
    assert "415" in str(found)
    assert "Content-Type" in found.fix
    (asked,) = api.requests("PATCH")
    assert asked.headers["Content-Type"] == "application/merge-patch+json"


async def test_an_insecure_kubeconfig_is_fatal(api: ApiServer, tmp_path: Path) -> None:
    content = kubeconfig(api.url, None, "t0", cluster_insecure_skip_tls_verify=True)
    assert "insecure-skip-tls-verify" in str(await refusal(api, tmp_path, content))


async def test_a_hub_that_is_away_is_transient(api: ApiServer, tmp_path: Path) -> None:
    content = api.kubeconfig()
    await api.stop_listening()
    with pytest.raises(Transient):
        await check(api, tmp_path, content)
