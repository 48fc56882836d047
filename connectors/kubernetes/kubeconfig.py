"""A kubeconfig, read strictly: what we would send where, as one value; anything unsafe is refused by name.

Two trust levels. From a Secret (or anything else that an API user may edit) only inline data is taken: a path would
let its editor make the daemon read or run files of its own machine. A kubeconfig file that the operator mounted may
also name files beside it and an exec credential plugin. Never accepted: http, `insecure-skip-tls-verify`, basic
authentication, auth-provider (FR-AUT-02; Kueue refuses the same: kueue-contract section 10).
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dispatcher.core.errors import Refused
from dispatcher.core.explain_shapes import place_text, shape_text

_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Both make plain values only; the one in C, where there is one, does it ten times as fast."""


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A client-go credential plugin, as written in the kubeconfig's user."""

    config: tuple[tuple[str, Any], ...] = field(repr=False)
    command: str = ""


@dataclass(frozen=True, slots=True)
class Access:
    """How one cluster is reached and as whom. Secrets are kept out of `repr`, so out of logs and tracebacks."""

    server: str
    ca_pem: str | None = field(default=None, repr=False)
    client_pem: str | None = field(default=None, repr=False)
    """Client certificate and key, concatenated."""
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    plugin: ExecPlugin | None = None
    server_name: str | None = None
    proxy: str | None = field(default=None, repr=False)


class _Loose(BaseModel):
    """kubeconfig belongs to others and grows: unknown keys are none of our business; values never reach a message."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True, frozen=True, defer_build=True)


class _Cluster(_Loose):
    server: str = ""
    certificate_authority: str | None = Field(None, alias="certificate-authority")
    certificate_authority_data: str | None = Field(None, alias="certificate-authority-data")
    insecure: bool = Field(False, alias="insecure-skip-tls-verify")
    server_name: str | None = Field(None, alias="tls-server-name")
    proxy: str | None = Field(None, alias="proxy-url")


class _User(_Loose):
    token: str | None = None
    token_file: str | None = Field(None, alias="tokenFile")
    certificate: str | None = Field(None, alias="client-certificate")
    certificate_data: str | None = Field(None, alias="client-certificate-data")
    key: str | None = Field(None, alias="client-key")
    key_data: str | None = Field(None, alias="client-key-data")
    username: str | None = None
    password: str | None = None
    plugin: dict[str, Any] | None = Field(None, alias="exec")
    provider: dict[str, Any] | None = Field(None, alias="auth-provider")


class _Context(_Loose):
    cluster: str = ""
    user: str = ""


class _NamedCluster(_Loose):
    name: str
    cluster: _Cluster = _Cluster()


class _NamedUser(_Loose):
    name: str
    user: _User | None = None


class _NamedContext(_Loose):
    name: str
    context: _Context = _Context()


class _Kubeconfig(_Loose):
    current: str = Field("", alias="current-context")
    clusters: tuple[_NamedCluster, ...] = ()
    users: tuple[_NamedUser, ...] = ()
    contexts: tuple[_NamedContext, ...] = ()


class BadKubeconfig(Refused):
    """A kubeconfig cannot be used; the text says which key is wrong and what to write instead."""


def parse(content: bytes, directory: Path | None = None) -> Access:
    """Read a kubeconfig. `directory` is where its file lies; None means that it comes from an API object.

    Raises:
        BadKubeconfig: it is no kubeconfig, is incomplete, or asks for something that is refused.
    """
    config = _load(content)
    context = next((c.context for c in config.contexts if c.name == config.current), None)
    if context is None:
        raise BadKubeconfig(f"current-context {config.current!r} names no context")
    cluster = next((c.cluster for c in config.clusters if c.name == context.cluster), None)
    if cluster is None:
        raise BadKubeconfig(f"cluster {context.cluster!r} of the current context is not in the file")
    user = next((u.user for u in config.users if u.name == context.user), None) or _User()
    _refuse_unsafe(cluster, user)
    if directory is None:
        _refuse_files(cluster, user)
    at = directory or Path()
    return Access(
        server=cluster.server.rstrip("/"),
        ca_pem=_material(
            "certificate-authority", cluster.certificate_authority_data, cluster.certificate_authority, at
        ),
        client_pem=_client_pem(user, at),
        token=user.token or None,
        token_file=at / user.token_file if user.token_file and not user.token else None,
        plugin=_plugin(user),
        server_name=cluster.server_name,
        proxy=cluster.proxy,
    )


def _load(content: bytes) -> _Kubeconfig:
    try:
        raw = yaml.load(content, Loader=_LOADER)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark is not None else ""
        # The parser's own text quotes the file, secrets included: it must not travel.
        raise BadKubeconfig(f"the kubeconfig is not valid YAML{place}") from None
    try:
        return _Kubeconfig.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where, rule = place_text(first["loc"]) or "the document", shape_text(first["type"], first.get("ctx", {}))
        raise BadKubeconfig(f"the kubeconfig is malformed at {where}: {rule}") from None


def _refuse_unsafe(cluster: _Cluster, user: _User) -> None:
    parts = urlsplit(cluster.server)
    if parts.scheme != "https" or not parts.hostname or parts.username or parts.password:
        raise BadKubeconfig("server: an https:// address without a user name is required")
    if cluster.insecure:
        raise BadKubeconfig(
            "insecure-skip-tls-verify is refused: put the cluster's CA into certificate-authority-data instead"
        )
    if user.username or user.password:
        raise BadKubeconfig("username/password is refused: use a token or a client certificate")
    if user.provider is not None:
        raise BadKubeconfig("auth-provider is refused (removed from Kubernetes): use a token or a client certificate")


def _refuse_files(cluster: _Cluster, user: _User) -> None:
    """Nothing an API user writes may name a path or a program of the daemon's machine."""
    named = {
        "certificate-authority": cluster.certificate_authority,
        "client-certificate": user.certificate,
        "client-key": user.key,
        "tokenFile": user.token_file,
    }
    for key, value in named.items():
        if value:
            advice = "token" if key == "tokenFile" else f"{key}-data"
            raise BadKubeconfig(f"{key} is refused in a kubeconfig from a Secret: put the content into {advice}")
    if user.plugin is not None:
        raise BadKubeconfig("exec is refused in a kubeconfig from a Secret: use a token or a client certificate")


def _plugin(user: _User) -> ExecPlugin | None:
    if user.plugin is None:
        return None
    return ExecPlugin(tuple(sorted(user.plugin.items())), str(user.plugin.get("command", "")))


def _client_pem(user: _User, at: Path) -> str | None:
    certificate = _material("client-certificate", user.certificate_data, user.certificate, at)
    key = _material("client-key", user.key_data, user.key, at)
    if (certificate is None) != (key is None):
        raise BadKubeconfig("client-certificate and client-key are needed together")
    return f"{certificate}\n{key}" if certificate and key else None


def _material(name: str, data: str | None, file: str | None, at: Path) -> str | None:
    """PEM text from inline base64, or from a file beside the kubeconfig. Data wins, as in client-go."""
    if data:
        try:
            return base64.b64decode(data, validate=False).decode("ascii")
        except (binascii.Error, ValueError):
            raise BadKubeconfig(f"{name}-data is not base64 of a PEM text") from None
    if file:
        try:
            return (at / file).read_text("ascii")
        except (OSError, ValueError):
            raise BadKubeconfig(f"{name}: its file cannot be read") from None
    return None
