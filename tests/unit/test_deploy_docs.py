"""The install pages: files that they name exist, and the example of a new cloud is one that the loader takes."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from dispatcher.config import load_blueprint
from dispatcher.config.render import render
from dispatcher.core.ids import ClusterName
from tests.unit.deploy_files import DEPLOY, ROOT, grants, one, roles

NOW = datetime(2026, 12, 2, tzinfo=UTC)
NEW = ClusterName("cloud-d-no")
BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE_OF = {
    "providers": "fleet.yaml",
    "regions": "fleet.yaml",
    "round_trips": "fleet.yaml",
    "clusters": "fleet.yaml",
    "compute": "prices.yaml",
    "egress": "prices.yaml",
    "stores": "data.yaml",
    "data_sets": "data.yaml",
    "queues": "queues.yaml",
}


class Plain(yaml.SafeDumper):
    """Writes every text as it was read: Norway stays NO."""

    yaml_implicit_resolvers: dict[str, Any] = {}


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def merged(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {key: merged(old.get(key), value) for key, value in new.items()}
    if isinstance(old, list) and isinstance(new, list) and any(isinstance(item, dict) for item in new):
        return old + new
    return new


def with_the_pages_cloud(folder: Path) -> Path:
    """The example blueprint after everything that docs/add-a-cloud.md adds to it."""
    shutil.copytree(ROOT / "config", folder)
    files = {name: yaml.load((folder / name).read_text(), yaml.BaseLoader) for name in set(FILE_OF.values())}
    for text in BLOCK.findall(page("add-a-cloud.md")):
        for key, value in yaml.load(text, yaml.BaseLoader).items():
            if key in FILE_OF:
                content = files[FILE_OF[key]]
                content[key] = merged(content[key], value)
    for name, content in files.items():
        (folder / name).write_text(yaml.dump(content, Dumper=Plain, sort_keys=False, width=1000))
    return folder


@pytest.mark.parametrize("name", ["install.md", "add-a-cloud.md"])
def test_the_files_that_a_page_names_exist(name: str) -> None:
    words = {word.strip("`,.;:()[]|") for word in page(name).split()}
    named = {word for word in words if word.startswith(("deploy/", "config/", "docs/", "demo/", "tests/"))}
    assert named
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", ["install.md", "add-a-cloud.md", "adr/0008-least-privilege.md"])
def test_the_pages_that_a_page_links_exist(name: str) -> None:
    links = re.findall(r"\]\(([^)#]+)", page(name))
    assert links
    assert [link for link in links if not ((ROOT / "docs" / name).parent / link).exists()] == []


def test_every_permission_has_its_reason_in_the_install_page() -> None:
    used = {
        g.resource
        for folder in ("hub", "worker", "interactive", "data-access")
        for role in roles(folder)
        for g in grants(role)
    }
    assert [resource for resource in sorted(used) if f"`{resource}`" not in page("install.md")] == []


def test_the_install_page_names_the_dispatcher_of_the_fleets() -> None:
    from tests.fleet.kueue import multikueue_configuration

    told = yaml.safe_load(BLOCK.findall(page("install.md"))[0])["multiKueue"]["dispatcherName"]
    assert told == multikueue_configuration(30)["dispatcherName"]


def test_the_cloud_that_the_page_adds_is_a_valid_one(tmp_path: Path) -> None:
    result = load_blueprint(with_the_pages_cloud(tmp_path / "config"), NOW)
    assert [problem.text() for problem in result.errors] == []
    assert result.policy is not None
    cluster = result.policy.clusters[NEW]
    assert (cluster.credentials.secret_namespace, cluster.credentials.secret_name) == (
        one("hub", "Role", "entrepot-worker-access")["metadata"]["namespace"],
        f"{NEW}-entrepot",
    )


def test_the_cloud_that_the_page_adds_is_rendered_for_hub_and_worker(tmp_path: Path) -> None:
    result = load_blueprint(with_the_pages_cloud(tmp_path / "config"), NOW)
    assert result.blueprint is not None
    rendered = render(result.blueprint)
    assert NEW in {m["metadata"]["name"] for m in rendered.hub if m["kind"] == "MultiKueueCluster"}
    training = next(m for m in rendered.workers[NEW] if m["metadata"]["name"] == "autonomy-training")
    assert "b200" in {f["name"] for f in training["spec"]["resourceGroups"][0]["flavors"]}


def test_the_page_adds_nothing_that_only_warns(tmp_path: Path) -> None:
    before = load_blueprint(ROOT / "config", NOW).warnings
    after = load_blueprint(with_the_pages_cloud(tmp_path / "config"), NOW).warnings
    assert [w.text() for w in after if str(NEW) in w.text() or "neocloud" in w.text()] == []
    assert len(after) == len(before)


def test_no_secret_lies_in_the_manifests() -> None:
    kinds = {m["kind"] for path in DEPLOY.rglob("*.yaml") for m in yaml.safe_load_all(path.read_text()) if m}
    assert "Secret" not in kinds
    assert (DEPLOY / "worker" / "kubeconfig-secret.sh").stat().st_mode & 0o111
