"""`policy keygen|sign|verify|audit`, as a person and as CI would call them."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from dispatcher.cli.main import run
from dispatcher.core.audit import AuditKind, Entry
from dispatcher.store import open_store
from tests.builders import START
from tests.loops.bench import CONFIG

NOW = "2026-11-29T12:00:00Z"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(CONFIG, tmp_path / "blueprint")
    return tmp_path / "blueprint"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    assert run(["policy", "keygen", str(tmp_path / "rules")]) == 0
    return tmp_path / "rules.key"


def sign(folder: Path, key: Path, *more: str) -> int:
    return run(
        ["policy", "sign", "--key", str(key), "--author", "ann", "--revision", "r1", *more, "--now", NOW, str(folder)]
    )


def verify(folder: Path, key: Path, now: str = NOW) -> int:
    return run(["policy", "verify", "--trusted-keys", str(key.with_suffix(".pub")), "--now", now, str(folder)])


def test_a_signed_blueprint_is_good_until_somebody_edits_it(
    folder: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sign(folder, key, "--approver", "bob") == 0
    assert verify(folder, key) == 0
    assert "serial 1, revision r1, by ann, approved by bob" in capsys.readouterr().out
    (folder / "fleet.yaml").write_text((folder / "fleet.yaml").read_text() + "# moved\n")
    assert verify(folder, key) == 1
    assert "signed for other files" in capsys.readouterr().out


def test_each_signature_has_the_next_serial_and_may_end(folder: Path, key: Path) -> None:
    assert sign(folder, key) == 0
    assert sign(folder, key, "--valid-days", "1") == 0
    assert json.loads((folder / "residency/manifest.json").read_text())["serial"] == 2
    assert verify(folder, key, "2026-11-30T11:59:59Z") == 0
    assert verify(folder, key, "2026-11-30T12:00:00Z") == 1


def test_a_blueprint_that_is_not_valid_is_not_signed(
    folder: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "data.yaml").write_text("labels: [")
    assert sign(folder, key) == 1
    assert "data.yaml:" in capsys.readouterr().err
    assert not (folder / "residency/manifest.json").exists()


def test_a_key_is_never_overwritten_and_its_secret_half_is_only_ours(
    key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = key.read_text()
    assert key.stat().st_mode & 0o777 == 0o600
    assert run(["policy", "keygen", str(key.with_suffix(""))]) == 1
    assert key.read_text() == before
    said = capsys.readouterr()
    assert before.splitlines()[1] not in said.out + said.err


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "entrepot.db"

    async def fill() -> None:
        opened = await open_store(path)
        rows = [Entry(f"e/{n}", AuditKind.VERDICT, START, "unsigned", "b", answer="allow") for n in range(3)]
        await opened.audit_log.add(rows)
        await opened.close()

    asyncio.run(fill())
    return path


def test_an_export_verifies_and_a_changed_one_names_its_first_row(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["policy", "audit", "--store", str(store), "--verify"]) == 0
    assert run(["policy", "audit", "--store", str(store)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("good: 3 rows, 1 to 3")
    export = tmp_path / "audit.jsonl"
    export.write_text("\n".join(lines[1:]))
    assert run(["policy", "audit", "--verify", "--from", str(export)]) == 0
    lines[2] = lines[2].replace("allow", "deny!")
    export.write_text("\n".join(lines[1:]))
    capsys.readouterr()
    assert run(["policy", "audit", "--verify", "--from", str(export)]) == 1
    assert capsys.readouterr().out == "broken at row 2: its content is not what was written\n"
