"""What the doctor's survey reads out of single objects: kubeconfigs, certificates, Kueue's files, the policy."""

from __future__ import annotations

import base64
import copy
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from connectors.kubernetes.survey.clearing import binding_faults, policy_faults, writes_old_api
from connectors.kubernetes.survey.der import not_after
from connectors.kubernetes.survey.kubeconfigs import inspect, token_end
from connectors.kubernetes.survey.kueue_config import (
    configuration,
    duration_s,
    flag_gates,
    floor_of,
    manager_of,
    version_of,
)
from dispatcher.core.doctor.facts import KubeconfigFault, PolicyFault

Raw = dict[str, Any]
ENDS = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)


def certificate(ends: datetime = ENDS, begins: datetime | None = None) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x" * 60)])
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins or datetime(2026, 1, 1, tzinfo=UTC))
        .not_valid_after(ends)
        .sign(key, hashes.SHA256())
    )
    return built.public_bytes(serialization.Encoding.PEM).decode()


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def jwt(claims: Raw) -> str:
    part = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"{part}.{part}.sig"


def kubeconfig(cluster: Raw | None = None, user: Raw | None = None, **top: Any) -> bytes:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [
            {
                "name": "c",
                "cluster": {
                    "server": "https://10.0.0.1:6443",
                    "certificate-authority-data": b64("ca"),
                    **(cluster or {}),
                },
            }
        ],
        "users": [{"name": "u", "user": {"token": "opaque"} if user is None else user}],
        **top,
    }
    return yaml.safe_dump(content).encode()


# --- kubeconfigs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "faults"),
    [
        pytest.param(kubeconfig(), [], id="an https address with a CA and a token is good"),
        pytest.param(kubeconfig({"server": "https://api.example.com"}), [], id="a DNS name is good"),
        pytest.param(kubeconfig({"server": "https://[fd00::1]:6443"}), [], id="an IPv6 address is good"),
        pytest.param(kubeconfig({"server": "http://10.0.0.1"}), [KubeconfigFault.NOT_HTTPS], id="plain http is not"),
        pytest.param(
            kubeconfig({"server": "https://API_server:6443"}), [KubeconfigFault.BAD_HOST], id="an underscore is not"
        ),
        pytest.param(kubeconfig({"server": "https://[::1"}), [KubeconfigFault.BAD_HOST], id="half an address is not"),
        pytest.param(
            kubeconfig({"insecure-skip-tls-verify": True}), [KubeconfigFault.INSECURE], id="skipping TLS is insecure"
        ),
        pytest.param(
            kubeconfig({"certificate-authority": "/ca.crt"}), [KubeconfigFault.CA_FILE], id="a CA by file is refused"
        ),
        pytest.param(
            kubeconfig(user={"tokenFile": "/token"}), [KubeconfigFault.CREDENTIAL_FILE], id="a token file is refused"
        ),
        pytest.param(
            kubeconfig(user={"exec": {"command": "aws"}}), [KubeconfigFault.EXEC], id="an exec plugin is refused"
        ),
        pytest.param(
            kubeconfig(user={"auth-provider": {"name": "gcp"}}),
            [KubeconfigFault.AUTH_PROVIDER],
            id="an auth provider is refused",
        ),
        pytest.param(
            kubeconfig(user={"username": "a", "password": "b"}),
            [KubeconfigFault.BASIC_AUTH],
            id="a password is refused",
        ),
        pytest.param(kubeconfig(user={}), [KubeconfigFault.NO_CREDENTIAL], id="nobody is not somebody"),
        pytest.param(b"{{", [KubeconfigFault.MALFORMED], id="no YAML is malformed"),
        pytest.param(kubeconfig(**{"current-context": "z"}), [KubeconfigFault.MALFORMED], id="no context is malformed"),
        pytest.param(
            kubeconfig({"insecure-skip-tls-verify": True, "server": "http://x"}, {"tokenFile": "/t"}),
            [KubeconfigFault.NOT_HTTPS, KubeconfigFault.INSECURE, KubeconfigFault.CREDENTIAL_FILE],
            id="all that is wrong is told, not only the first",
        ),
    ],
)
def test_a_kubeconfig_of_a_secret_is_judged_by_kueues_rules(content: bytes, faults: list[KubeconfigFault]) -> None:
    assert [fault for fault, _ in inspect(content).faults] == faults


def test_a_kubeconfig_file_of_the_operator_may_name_files_and_a_plugin() -> None:
    content = kubeconfig({"certificate-authority": "/ca.crt"}, {"exec": {"command": "aws"}})
    assert inspect(content, from_secret=False).faults == ()


def test_no_secret_of_a_kubeconfig_is_ever_in_what_is_told() -> None:
    content = kubeconfig({"server": "http://x"}, {"username": "hans", "password": "hunter2", "token": "hunter2"})
    assert "hunter2" not in repr(inspect(content))


def test_ends_of_token_certificate_and_authority_are_read() -> None:
    user = {"token": jwt({"exp": int(ENDS.timestamp())}), "client-certificate-data": b64(certificate())}
    authority = certificate(ENDS + timedelta(days=1))
    found = inspect(kubeconfig({"certificate-authority-data": b64(authority)}, user))
    assert (found.token_ends, found.certificate_ends, found.ca_ends) == (ENDS, ENDS, ENDS + timedelta(days=1))


@pytest.mark.parametrize("token", ["", "opaque", "a.b.c", jwt({}), jwt({"exp": "soon"}), jwt({"exp": 1e30}), "ä.ä.ä"])
def test_a_token_that_does_not_say_when_it_ends_has_no_end(token: str) -> None:
    assert token_end(token) is None


def test_the_earliest_certificate_of_a_bundle_counts_also_past_2049() -> None:
    late = certificate(datetime(2055, 1, 2, tzinfo=UTC))
    assert not_after(late.encode()) == datetime(2055, 1, 2, tzinfo=UTC)
    assert not_after((late + certificate()).encode()) == ENDS


@pytest.mark.parametrize("junk", [b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", b"\xff\xfe"])
def test_what_is_no_certificate_has_no_end(junk: bytes) -> None:
    assert not_after(junk) is None


def test_a_certificate_cut_anywhere_never_raises() -> None:
    pem = certificate()
    for length in range(0, len(pem), 7):
        not_after((pem[:length] + "\n-----END CERTIFICATE-----").encode())


# --- Kueue's files -----------------------------------------------------------------------------------------------


def config_map(text: str) -> Raw:
    meta = {"namespace": "kueue-system", "name": "kueue-manager-config"}
    return {"metadata": meta, "data": {"controller_manager_config.yaml": text}}


def deployment(image: str, *args: str, **labels: str) -> Raw:
    sidecar = {"name": "proxy", "image": "registry.example/kube-rbac-proxy:v0.18.0"}
    containers = [sidecar, {"name": "manager", "image": image, "args": list(args)}]
    return {"metadata": {"labels": labels}, "spec": {"template": {"spec": {"containers": containers}}}}


def test_what_dispatch_depends_on_is_read_from_the_configuration() -> None:
    text = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
multiKueue:
  dispatcherName: entrepot.dev/dispatcher
  gcInterval: 0s
  origin: hub-2
  workerLostTimeout: 1m30s
  externalFrameworks: [{name: Foo.v1.example.com}]
integrations: {frameworks: [batch/job]}
resources: {excludeResourcePrefixes: [example.com]}
"""
    found = configuration(config_map(text), deployment("x/kueue:v0.19.2", "--feature-gates=A=true,B=false"))
    assert (found.dispatcher, found.origin, found.problem) == ("entrepot.dev/dispatcher", "hub-2", "")
    assert (found.gc_interval_s, found.worker_lost_timeout_s) == (0, 90)
    assert (found.frameworks, found.external_frameworks) == (("batch/job",), ("Foo.v1.example.com",))
    assert (found.gate("A"), found.gate("B"), found.gate("C")) == (True, False, None)
    assert found.accounting_changes == ("resources.excludeResourcePrefixes",)


def test_what_is_not_set_stays_unknown() -> None:
    found = configuration(config_map("kind: Configuration"), None)
    assert (found.dispatcher, found.frameworks, found.gc_interval_s) == (None, None, None)


@pytest.mark.parametrize("text", ["", "[", "kind: Other", "just words"])
def test_a_file_that_is_no_configuration_says_so(text: str) -> None:
    assert configuration(config_map(text), None).problem


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("15m", 900), ("1h30m", 5400), ("0s", 0), ("0", 0), ("1.5s", 2), ("500ms", 1), (7, 7), ("soon", None), ("", None)],
)
def test_durations_are_read_as_go_writes_them(text: object, seconds: int | None) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("registry.k8s.io/kueue/kueue:v0.19.2", (0, 19, 2)),
        ("localhost:5000/kueue:v0.17.0@sha256:abc", (0, 17, 0)),
        ("mirror.example/kueue/kueue:v0.18.6-vendor.3", (0, 18, 6)),
        ("localhost:5000/kueue", None),
        ("x/kueue:main", None),
    ],
)
def test_kueues_version_is_in_its_images_tag(image: str, version: tuple[int, int, int] | None) -> None:
    found = manager_of((deployment("x/other:v9.9.9"), deployment(image)))
    assert found is not None
    assert version_of(found).exact == version


def test_a_charts_label_tells_the_version_where_the_tag_does_not() -> None:
    labelled = deployment("x/kueue:main", **{"app.kubernetes.io/version": "v0.19.2"})
    assert version_of(labelled).exact == (0, 19, 2)


def test_without_a_manager_there_are_no_flags() -> None:
    assert flag_gates(None) == {}
    assert manager_of((deployment("x/other:v1.0.0"),)) is None


@pytest.mark.parametrize(
    ("spec", "floor"),
    [
        ({"clusters": {"x-kubernetes-list-type": "atomic"}, "quotaManagement": {}}, (0, 19, 0)),
        ({"clusters": {"x-kubernetes-list-type": "set"}, "quotaManagement": {}}, (0, 18, 0)),
        ({"clusters": {"x-kubernetes-list-type": "set"}}, None),
    ],
)
def test_the_served_schema_gives_a_lower_bound_of_the_version(spec: Raw, floor: tuple[int, int, int] | None) -> None:
    schema = {"properties": {"spec": {"properties": spec}}}
    assert floor_of({"components": {"schemas": {"io.x-k8s.kueue.v1beta2.MultiKueueConfig": schema}}}) == floor


# --- the clearing policy -----------------------------------------------------------------------------------------

POLICY: Raw = {
    "spec": {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
            "resourceRules": [
                {
                    "apiGroups": ["kueue.x-k8s.io"],
                    "apiVersions": ["v1beta2"],
                    "operations": ["UPDATE"],
                    "resources": ["workloads", "workloads/status"],
                }
            ],
        },
        "matchConditions": [{"name": "trigger", "expression": "object.status.clusterName ... c.type == 'Evicted'"}],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "/status/nominatedClusterNames"}}],
    }
}


def edited(*path: Any, value: Any) -> Raw:
    changed = copy.deepcopy(POLICY)
    at: Any = changed["spec"]
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return changed


@pytest.mark.parametrize(
    ("policy", "faults"),
    [
        pytest.param(POLICY, [], id="the shipped policy, with what the API fills in, is good"),
        pytest.param(
            edited("matchConstraints", "resourceRules", 0, "apiVersions", value=["v1beta1"]),
            [PolicyFault.RULES],
            id="it must match v1beta2",
        ),
        pytest.param(
            edited("matchConstraints", "namespaceSelector", value={"matchLabels": {"a": "b"}}),
            [PolicyFault.RULES],
            id="it must hold in every namespace",
        ),
        pytest.param(edited("mutations", value=[]), [PolicyFault.MUTATION], id="it must change something"),
        pytest.param(
            edited("matchConditions", value=[]), [PolicyFault.CONDITIONS], id="it must not clear at every update"
        ),
        pytest.param(
            edited("failurePolicy", value="Ignore"), [PolicyFault.FAILURE_POLICY], id="it must not be skipped"
        ),
        pytest.param(
            edited("paramKind", value={"kind": "ConfigMap"}), [PolicyFault.PARAMETERS], id="it must need no parameters"
        ),
    ],
)
def test_a_policy_is_compared_with_the_one_that_works(policy: Raw, faults: list[PolicyFault]) -> None:
    assert [fault for fault, _ in policy_faults(policy)] == faults


def bound(**spec: Any) -> Raw:
    return {"spec": {"policyName": "p", **spec}}


@pytest.mark.parametrize(
    ("bindings", "faults"),
    [
        pytest.param((bound(),), [], id="one plain binding is enough"),
        pytest.param((bound(matchResources={"matchPolicy": "Equivalent"}),), [], id="defaults do not narrow"),
        pytest.param((), [PolicyFault.NOT_BOUND], id="none is none"),
        pytest.param(({"spec": {"policyName": "q"}},), [PolicyFault.NOT_BOUND], id="another policy's does not count"),
        pytest.param(
            (bound(matchResources={"namespaceSelector": {"matchLabels": {"a": "b"}}}),),
            [PolicyFault.BINDING_NARROWED],
            id="one that selects namespaces is not everywhere",
        ),
        pytest.param((bound(paramRef={"name": "x"}),), [PolicyFault.BINDING_NARROWED], id="parameters narrow as well"),
        pytest.param((bound(paramRef={"name": "x"}), bound()), [], id="a whole one beside a narrow one is enough"),
    ],
)
def test_a_binding_must_cover_everything(bindings: tuple[Raw, ...], faults: list[PolicyFault]) -> None:
    assert [fault for fault, _ in binding_faults(bindings, "p")] == faults


@pytest.mark.parametrize(
    ("version", "subresource", "old"),
    [("v1beta1", "status", True), ("v1beta2", "status", False), ("v1beta1", "", False)],
)
def test_only_status_written_through_the_old_api_goes_past_the_policy(
    version: str, subresource: str, old: bool
) -> None:
    entry = {"apiVersion": f"kueue.x-k8s.io/{version}", "subresource": subresource}
    assert writes_old_api({"metadata": {"managedFields": [entry]}}) is old
