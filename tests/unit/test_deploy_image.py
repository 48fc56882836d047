"""The image: locked packages that agree with what is tested, nothing of the development tools, nobody as its user."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.unit.deploy_files import DEPLOY, ROOT, one

DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
PINNED = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==(\S+)", re.MULTILINE)


def locked(path: Path) -> dict[str, tuple[str, frozenset[str]]]:
    """Package to its version and hashes."""
    text = path.read_text()
    parts = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)
    found = {}
    for part in parts:
        match = PINNED.match(part)
        if match is not None:
            found[match.group(1)] = (match.group(2), frozenset(re.findall(r"--hash=(\S+)", part)))
    return found


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[><=!~\[; ]", text)[0].lower() for text in requirements}


def stages() -> list[list[str]]:
    """Instructions by stage, continued lines joined."""
    lines = re.sub(r"\\\n\s*", "", DOCKERFILE).splitlines()
    found: list[list[str]] = []
    for line in lines:
        if line.startswith("FROM "):
            found.append([])
        if found and line and not line.startswith("#"):
            found[-1].append(line)
    return found


@pytest.mark.parametrize("name", ["requirements.lock", "build.lock"])
def test_every_package_of_the_image_is_the_one_that_was_tested(name: str) -> None:
    """A difference means that `make lock` was not run after a change of pyproject.toml."""
    tested, shipped = locked(ROOT / "requirements.lock"), locked(DEPLOY / name)
    assert shipped
    assert {package: shipped[package] for package in shipped if tested.get(package) != shipped[package]} == {}
    assert all(hashes for _, hashes in shipped.values())


def test_the_image_has_every_dependency_and_no_development_tool() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    shipped = set(locked(DEPLOY / "requirements.lock"))
    assert names(project["dependencies"]) <= shipped
    tools = names(project["optional-dependencies"]["dev"]) - names(project["dependencies"])
    assert tools & shipped == set()


def test_packages_are_installed_by_hash_and_only_while_building() -> None:
    build, final = stages()
    installs = [line for line in build if re.search(r"\binstall\b", line)]
    assert installs
    for command in re.split(r"&&|\n", "\n".join(installs)):
        if "-r " in command:
            assert "--require-hashes" in command
        elif "install" in command:
            assert "--no-index" in command, command
    assert [line for line in final if line.startswith(("RUN", "ADD"))] == []


def test_everything_that_is_copied_exists() -> None:
    build, _ = stages()
    copied = [word for line in build if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert copied
    assert [name for name in copied if not (ROOT / name).exists()] == []


def test_the_packages_that_setuptools_finds_are_copied() -> None:
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]["include"]
    build, _ = stages()
    copied = {line.split()[1] for line in build if line.startswith("COPY ")}
    assert {pattern.rstrip("*") for pattern in found} <= copied


def test_the_user_is_a_number_that_is_not_root_and_the_same_as_in_the_deployment() -> None:
    _, final = stages()
    user = next(line for line in final if line.startswith("USER ")).split()[1]
    pod = one("hub", "Deployment")["spec"]["template"]["spec"]["securityContext"]
    assert user == f"{pod['runAsUser']}:{pod['runAsGroup']}"
    assert not user.startswith("0")


def test_the_image_starts_the_command_line() -> None:
    _, final = stages()
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    entry = next(line for line in final if line.startswith("ENTRYPOINT "))
    assert entry == 'ENTRYPOINT ["entrepot"]'
    assert "entrepot" in scripts
