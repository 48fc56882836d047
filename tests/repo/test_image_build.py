"""The Dockerfile, carried out without Docker: its RUN lines in a folder, and what they make started by another user.

An interpreter of its own stands for the image's Python. Packages come from whatever index pip is told to use on this
machine, checked against the hashes of the locks, as in the image.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.deploy_files import ROOT
from tests.unit.test_deploy_image import locked, stages

pytestmark = pytest.mark.slow
_PLACES = ("/opt/entrepot", "/wheels")
_LONGEST_S = 300
_NOT_OURS = ("PYTHON", "VIRTUAL_ENV", "COVERAGE", "PYTEST")
"""Settings of the run of tests, which no build has."""


def reachable(path: Path) -> bool:
    """Whether any user may come to it."""
    return all(folder.stat().st_mode & 0o001 for folder in path.resolve().parents)


def interpreter() -> Path:
    """This run's Python; where others may not reach that and there is another of the same version, the other."""
    own = Path(getattr(sys, "_base_executable", sys.executable))
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    other = shutil.which(name, path=os.defpath)
    return own if reachable(own) or other is None else Path(other)


INTERPRETER = interpreter()


@dataclass(frozen=True)
class Image:
    """A folder in place of `/`; `source` is the WORKDIR of the build stage."""

    root: Path
    source: Path
    python: Path

    @property
    def entrepot(self) -> Path:
        return self.root / "opt/entrepot/bin/entrepot"

    def run(self, script: str) -> None:
        """One RUN line. Fails with what it printed last."""
        for place in _PLACES:
            script = re.sub(rf"(?<![\w./]){re.escape(place)}\b", f"{self.root}{place}", script)
        done = subprocess.run(
            ["sh", "-ec", script],
            cwd=self.source,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{(done.stdout + done.stderr)[-3000:]}"

    def _environment(self) -> dict[str, str]:
        ours = {key: value for key, value in os.environ.items() if not key.startswith(_NOT_OURS)}
        said = dict(pair.split("=", 1) for line in stages()[0] if line.startswith("ENV ") for pair in line.split()[1:])
        return {**ours, **said, "PATH": f"{self.python.parent}{os.pathsep}{os.environ['PATH']}"}

    def copy(self, sources: list[str], target: str) -> None:
        """One COPY line: files into a folder, or the content of a folder to another."""
        to = self.source / target
        for name in sources:
            found = ROOT / name
            if found.is_dir():
                shutil.copytree(found, to, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                to.mkdir(parents=True, exist_ok=True)
                shutil.copy(found, to)


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    """Not below pytest's own folder, into which no other user may look."""
    with tempfile.TemporaryDirectory(prefix="entrepot-image-") as name:
        root = Path(name)
        root.chmod(0o755)
        made = Image(root, root / "source", root / "python/bin/python")
        made.source.mkdir()
        subprocess.run(
            [str(INTERPRETER), "-m", "venv", str(root / "python")], check=True, timeout=_LONGEST_S, capture_output=True
        )
        for line in stages()[0]:
            words = line.split()
            if words[0] == "RUN":
                made.run(line.removeprefix("RUN "))
            elif words[0] == "COPY":
                made.copy(words[1:-1], words[-1])
        yield made


def asked(image: Image, *command: str, **how: object) -> str:
    """What the finished image's program prints, with nothing of this checkout in sight."""
    done = subprocess.run(
        [str(image.entrepot), *command],
        cwd="/",
        env={"HOME": "/tmp", "PATH": f"{image.entrepot.parent}{os.pathsep}{os.defpath}", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **how,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return str(done.stdout)


def test_the_lines_of_the_dockerfile_make_a_program_that_starts(image: Image) -> None:
    assert "--blueprint" in asked(image, "serve", "--help")
    assert asked(image, "version").startswith("entrepot ")


def test_the_wheel_holds_all_that_the_program_reads_beside_its_code(image: Image, tmp_path: Path) -> None:
    """Schemas, country tables, steps of the store's schema: a lint and a simulation go through most of it."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    asked(image, "blueprint", "lint", str(tmp_path / "config"))
    script = "import asyncio, sys; from dispatcher.store import open_store; asyncio.run(open_store(sys.argv[1]))"
    python = image.entrepot.with_name("python")
    done = subprocess.run(
        [str(python), "-c", script, str(tmp_path / "x.db")], cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_exactly_the_locked_packages_are_in_it_and_nothing_that_could_install_more(image: Image) -> None:
    site = next((image.root / "opt/entrepot/lib").glob("python*/site-packages"))
    found = {path.name.removesuffix(".dist-info").rsplit("-", 1)[0] for path in site.glob("*.dist-info")}
    names = {re.sub(r"[-_.]+", "-", name).lower() for name in found}
    lock = {re.sub(r"[-_.]+", "-", name).lower() for name in locked(ROOT / "deploy/requirements.lock")}
    assert "entrepot" in names
    assert names - {"entrepot"} <= lock
    assert not names & {"pip", "setuptools"}


def test_another_user_may_start_it(image: Image) -> None:
    """The image's user owns nothing in it: who runs must need no more than to read."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    if not reachable(INTERPRETER):
        pytest.skip("no other user can reach this machine's Python, of which the folder's is a link")
    user = next(line for line in stages()[1] if line.startswith("USER ")).split()[1]
    uid, _, gid = user.partition(":")
    assert "--blueprint" in asked(image, "serve", "--help", user=int(uid), group=int(gid), extra_groups=[])
