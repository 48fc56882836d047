"""Kueue's Configuration and its manager's image, as far as dispatch depends on them. Pure."""

from __future__ import annotations

import re
from typing import Any

import yaml

from connectors.kubernetes.fields import Raw, child, children, text, texts
from dispatcher.core.doctor.facts import KueueConfig, KueueVersion
from dispatcher.core.doctor.versions import Version, parse_version

CONFIG_MAP = "kueue-manager-config"
CONFIG_KEY = "controller_manager_config.yaml"
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def configuration(config_map: Raw, deployment: Raw | None) -> KueueConfig:
    """What the ConfigMap's file says, with the feature gates of the manager's command line added."""
    meta = child(config_map, "metadata")
    where = f"{text(meta, 'namespace')}/{text(meta, 'name')}"
    data = child(config_map, "data")
    content = text(data, CONFIG_KEY) or next((value for value in data.values() if isinstance(value, str)), "")
    try:
        raw = yaml.safe_load(content)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        return KueueConfig(where, problem=f"not valid YAML (line {mark.line + 1})" if mark else "not valid YAML")
    if not isinstance(raw, dict) or raw.get("kind") != "Configuration":
        return KueueConfig(where, problem="it holds no object of kind Configuration")
    return _read(where, raw, flag_gates(deployment))


def _read(where: str, raw: Raw, flags: dict[str, bool]) -> KueueConfig:
    multikueue, integrations = child(raw, "multiKueue"), child(raw, "integrations")
    resources = child(raw, "resources")
    gates = {key: value for key, value in child(raw, "featureGates").items() if isinstance(value, bool)} | flags
    changes = [f"resources.{key}" for key in ("excludeResourcePrefixes", "transformations") if resources.get(key)]
    external = multikueue.get("externalFrameworks")
    return KueueConfig(
        where=where,
        dispatcher=text(multikueue, "dispatcherName") or None,
        frameworks=texts(integrations, "frameworks") if "frameworks" in integrations else None,
        external_frameworks=tuple(
            text(entry, "name") if isinstance(entry, dict) else str(entry)
            for entry in (external if isinstance(external, list) else ())
        ),
        gc_interval_s=duration_s(multikueue.get("gcInterval")),
        worker_lost_timeout_s=duration_s(multikueue.get("workerLostTimeout")),
        origin=text(multikueue, "origin") or None,
        gates=tuple(sorted(gates.items())),
        accounting_changes=tuple(changes),
    )


def duration_s(value: Any) -> int | None:
    """A Go duration ("15m", "1h30m", "0s") in whole seconds, rounded up; None when it is none."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if value == "0":
        return 0
    if not isinstance(value, str) or not value:
        return None
    parts = list(_DURATION.finditer(value))
    if not parts or "".join(part[0] for part in parts) != value:
        return None
    exact = sum(float(part[1]) * _SECONDS[part[2]] for part in parts)
    return -int(-exact // 1)


def manager_of(deployments: tuple[Raw, ...]) -> Raw | None:
    """The Deployment that runs Kueue's manager: the one whose image is named kueue."""
    return next((deployment for deployment in deployments if _image(deployment)), None)


def version_of(deployment: Raw | None) -> KueueVersion:
    """The version in the image's tag, or else in the label that charts set."""
    if deployment is None:
        return KueueVersion()
    image = _image(deployment)
    tag = image.partition("@")[0].rpartition(":")[2] if ":" in image.rpartition("/")[2] else ""
    label = text(child(deployment, "metadata", "labels"), "app.kubernetes.io/version")
    for found in (tag, label):
        if (version := parse_version(found)) is not None:
            return KueueVersion(exact=version, text=found)
    return KueueVersion(text=image)


def flag_gates(deployment: Raw | None) -> dict[str, bool]:
    """The gates in the manager's --feature-gates; they exclude those of the file, so at most one of both is set."""
    gates: dict[str, bool] = {}
    for argument in texts(_manager(deployment), "args") if deployment is not None else ():
        name, _, value = argument.partition("=")
        if name.lstrip("-") == "feature-gates":
            pairs = (pair.partition("=") for pair in value.split(","))
            gates |= {gate.strip(): on.strip().lower() == "true" for gate, _, on in pairs if gate.strip()}
    return gates


def _image(deployment: Raw) -> str:
    return text(_manager(deployment), "image")


def _manager(deployment: Raw | None) -> Raw:
    spec = child(deployment or {}, "spec", "template", "spec")
    for container in children(spec, "containers"):
        last = text(container, "image").partition("@")[0].rpartition("/")[2].partition(":")[0]
        if last == "kueue" or last.startswith("kueue-controller"):
            return container
    return {}


def floor_of(openapi: Raw) -> Version | None:
    """The oldest Kueue that may serve this API: each field below came with the version named (section 10)."""
    schemas = child(openapi, "components", "schemas")
    config: Raw = next((value for key, value in schemas.items() if key.endswith(".MultiKueueConfig")), {})
    spec = child(config, "properties", "spec", "properties")
    if text(child(spec, "clusters"), "x-kubernetes-list-type") == "atomic":
        return (0, 19, 0)
    return (0, 18, 0) if "quotaManagement" in spec else None
