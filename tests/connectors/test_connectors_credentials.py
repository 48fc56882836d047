"""Kubeconfigs and where they come from: what is accepted, what is refused by name, and that nothing secret leaks."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from connectors.kubernetes.bearer import read_token
from connectors.kubernetes.credentials import (
    FileSource,
    InClusterSource,
    NoSource,
    SecretSource,
    same_endpoint,
)
from connectors.kubernetes.faults import NotFound
from connectors.kubernetes.fields import Raw
from connectors.kubernetes.kubeconfig import Access, BadKubeconfig, parse
from connectors.kubernetes.plugin import Token
from dispatcher.core.errors import Transient
from tests.connectors.support import authority, b64, kubeconfig, write

URL = "https://10.0.0.1:6443"
TRUST = authority()
SECRET = "s3cr3t-token-value"


def test_a_kubeconfig_with_ca_data_and_a_token_is_read() -> None:
    access = parse(kubeconfig(URL + "/", TRUST, SECRET, cluster_tls_server_name="api.internal"))
    assert access.server == URL
    assert access.ca_pem == TRUST.ca_pem
    assert access.token == SECRET
    assert access.server_name == "api.internal"


def test_a_kubeconfig_with_a_client_certificate_is_read() -> None:
    access = parse(
        kubeconfig(
            URL,
            TRUST,
            None,
            user_client_certificate_data=b64(TRUST.client_pem),
            user_client_key_data=b64(TRUST.client_key_pem),
        )
    )
    assert access.token is None
    assert access.client_pem is not None
    assert access.client_pem.startswith(TRUST.client_pem)


def changed(**changes: Any) -> bytes:
    return kubeconfig(changes.pop("server", URL), TRUST, SECRET, **changes)


def with_document(change: Callable[[dict[str, Any]], object]) -> bytes:
    document = yaml.safe_load(changed())
    change(document)
    return yaml.safe_dump(document).encode()


REFUSED = [
    ("http is refused", changed(server="http://10.0.0.1"), "https://"),
    ("a user in the URL is refused", changed(server="https://a:b@10.0.0.1"), "https://"),
    ("no server is refused", changed(server=""), "https://"),
    (
        "skipping TLS verification is refused",
        changed(cluster_insecure_skip_tls_verify=True),
        "insecure-skip-tls-verify",
    ),
    ("a CA path is refused", changed(cluster_certificate_authority="/etc/ca"), "certificate-authority-data"),
    ("a certificate path is refused", changed(user_client_certificate="/etc/c"), "client-certificate-data"),
    ("a key path is refused", changed(user_client_key="/etc/k"), "client-key-data"),
    ("a token path is refused", changed(user_tokenFile="/etc/passwd"), "tokenFile"),
    ("a program is refused", changed(user_exec={"command": "sh", "apiVersion": "v1"}), "exec"),
    ("basic authentication is refused", changed(user_username="u", user_password="p"), "username"),
    ("an auth provider is refused", changed(user_auth_provider={"name": "gcp"}), "auth-provider"),
    ("CA data must be base64", changed(cluster_certificate_authority_data="%%%é"), "certificate-authority-data"),
    ("a certificate without its key", changed(user_client_certificate_data=b64("x")), "together"),
    ("no current context", with_document(lambda d: d.update({"current-context": "other"})), "current-context"),
    ("a context without its cluster", with_document(lambda d: d.update(clusters=[])), "cluster 'k'"),
    ("a list where a map belongs", b"- a\n- b\n", "malformed"),
    ("a text where a list belongs", with_document(lambda d: d.update(clusters=SECRET)), "clusters"),
    ("not YAML", b"a: [" + SECRET.encode(), "not valid YAML"),
    ("binary", b"\xff\xfe\x00" + SECRET.encode(), "not valid YAML"),
    ("empty", b"", "malformed"),
]


@pytest.mark.parametrize(("content", "named"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_fr_aut_02_from_a_secret(content: bytes, named: str) -> None:
    with pytest.raises(BadKubeconfig) as caught:
        parse(content)
    assert named in str(caught.value)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None, "the parser's own error quotes the file"


def test_a_mounted_kubeconfig_may_name_files_beside_it(tmp_path: Path) -> None:
    write(tmp_path / "ca.pem", TRUST.ca_pem.encode())
    write(tmp_path / "token", b"from-file\n")
    content = kubeconfig(URL, None, None, cluster_certificate_authority="ca.pem", user_tokenFile="token")
    access = parse(content, tmp_path)
    assert access.ca_pem == TRUST.ca_pem
    assert access.token_file == tmp_path / "token"


@pytest.mark.parametrize("key", ["insecure-skip-tls-verify", "http"])
def test_a_mounted_kubeconfig_may_not_be_insecure_either(key: str, tmp_path: Path) -> None:
    content = changed(server="http://10.0.0.1") if key == "http" else changed(cluster_insecure_skip_tls_verify=True)
    with pytest.raises(BadKubeconfig):
        parse(content, tmp_path)


def test_secrets_are_not_in_the_repr() -> None:
    access = parse(
        changed(
            user_client_certificate_data=b64(TRUST.client_pem),
            user_client_key_data=b64(TRUST.client_key_pem),
            cluster_proxy_url="http://user:proxy-password@proxy",
        )
    )
    assert SECRET not in repr(access)
    assert "PRIVATE" not in repr(access)
    assert "proxy-password" not in repr(access)


# --- sources -----------------------------------------------------------------------------------------------------


def secret(content: bytes, key: str = "kubeconfig") -> Raw:
    return {"data": {key: base64.b64encode(content).decode()}}


async def from_secret(raw: Raw | Exception) -> Access:
    async def get(namespace: str, name: str) -> Raw:
        assert (namespace, name) == ("kueue-system", "w1")
        if isinstance(raw, Exception):
            raise raw
        return raw

    return await SecretSource(get, "kueue-system", "w1", "kubeconfig").read()


async def test_a_secret_gives_the_access() -> None:
    assert (await from_secret(secret(changed()))).token == SECRET


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        (NotFound("404"), "does not exist"),
        ({"data": {}}, "no key 'kubeconfig'"),
        ({}, "no key 'kubeconfig'"),
        ({"data": {"kubeconfig": "%%"}}, "not base64"),
        (secret(changed(cluster_insecure_skip_tls_verify=True)), "Secret kueue-system/w1: insecure-skip-tls-verify"),
    ],
    ids=["gone", "another key", "empty", "not base64", "insecure"],
)
async def test_a_secret_that_must_not_be_used(raw: Raw | Exception, named: str) -> None:
    with pytest.raises(BadKubeconfig) as caught:
        await from_secret(raw)
    assert named in str(caught.value)


async def test_a_hub_that_cannot_be_asked_is_no_verdict_on_the_credentials() -> None:
    with pytest.raises(Transient):
        await from_secret(Transient("hub down"))


async def test_a_file_source_reads_the_file_each_time(tmp_path: Path) -> None:
    source = FileSource(write(tmp_path / "config", kubeconfig(URL, TRUST, "one")))
    assert (await source.read()).token == "one"
    write(tmp_path / "config", kubeconfig(URL, TRUST, "two"))
    assert (await source.read()).token == "two"
    (tmp_path / "config").unlink()
    with pytest.raises(BadKubeconfig):
        await source.read()


async def test_in_cluster_reads_the_service_account(tmp_path: Path) -> None:
    write(tmp_path / "ca.crt", TRUST.ca_pem.encode())
    write(tmp_path / "token", b"pod-token")
    access = await InClusterSource("fd00::1", "443", tmp_path).read()
    assert access.server == "https://[fd00::1]:443"
    assert await read_token(access) == Token("pod-token")


async def test_outside_a_cluster_it_says_what_to_do() -> None:
    with pytest.raises(BadKubeconfig, match="kubeconfig file"):
        await InClusterSource("", "").read()


async def test_no_credentials_is_said_as_such() -> None:
    with pytest.raises(BadKubeconfig, match="names no credentials"):
        await NoSource("the blueprint names no credentials for this cluster").read()


def test_a_new_token_alone_keeps_the_connections() -> None:
    access = parse(changed())
    assert same_endpoint(access, replace(access, token="other"))
    assert not same_endpoint(access, replace(access, ca_pem=authority("two").ca_pem))
