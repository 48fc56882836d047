"""`policy keygen|sign|verify`: whose rules they are. All work on files; none needs a daemon or a network."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from dispatcher.cli.errors import CliError, ExitCode, unwritable
from dispatcher.cli.options import Output, OutputOption
from dispatcher.cli.policy_options import HERE, FolderArgument, NowOption, instant
from dispatcher.cli.printing import emit_data, note
from dispatcher.config.files import read_folder
from dispatcher.config.loader import LoadResult, load_content
from dispatcher.config.residency.manifest import (
    MANIFEST,
    SCHEMA,
    SIGNATURE,
    ReadManifest,
    read_manifest,
    write_manifest,
)
from dispatcher.config.residency.signing import SecretKey, SignatureError, make_key, parse_secret_key
from dispatcher.config.residency.signing import sign as signature_of
from dispatcher.config.residency.trust import Signed, judge_seal
from dispatcher.core.units import span

REFUSED, UNREADABLE = ExitCode.ERROR, ExitCode.USAGE
KeyOption = Annotated[
    Path,
    typer.Option("--key", envvar="ENTREPOT_SIGNING_KEY", help="the secret key, as keygen made it", metavar="FILE"),
]
KeysOption = Annotated[
    Path,
    typer.Option("--trusted-keys", envvar="ENTREPOT_TRUSTED_KEYS", help="public keys, as the daemon's", metavar="PATH"),
]


def keygen(
    name: Annotated[Path, typer.Argument(metavar="NAME", help="writes NAME.key (secret) and NAME.pub")],
) -> None:
    """Make a key for signing rules. The secret half has no password: it belongs into the secret store of your CI.

    minisign -G makes keys as good, with a password; sign with minisign -S then.
    """
    key = make_key(secrets.token_bytes(32), secrets.token_bytes(8))
    secret, public = name.with_name(f"{name.name}.key"), name.with_name(f"{name.name}.pub")
    made: list[Path] = []
    try:
        for path, mode, text in ((secret, 0o600, key.text()), (public, 0o644, key.public().text())):
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as stream:
                made.append(path)
                stream.write(text)
    except OSError as error:
        for path in made:
            path.unlink(missing_ok=True)
        fix = "name a place that is free and may be written to: a key is never overwritten"
        raise unwritable(error, str(error.filename or name), fix) from None
    note(f"wrote {secret} (keep it secret) and {public} (for --trusted-keys); key {key.id}")


def sign(  # noqa: PLR0913 - one parameter an option: that is how typer declares a command line
    key: KeyOption,
    folder: FolderArgument = HERE,
    serial: Annotated[
        int | None, typer.Option("--serial", min=1, help="default: one more than that of the last", metavar="N")
    ] = None,
    author: Annotated[str | None, typer.Option("--author", help="who changed it; default: git's author")] = None,
    approver: Annotated[list[str] | None, typer.Option("--approver", help="who approved it (may be repeated)")] = None,
    revision: Annotated[str | None, typer.Option("--revision", help="default: git's HEAD")] = None,
    valid_days: Annotated[int | None, typer.Option("--valid-days", min=1, help="it ends after so many days")] = None,
    now: NowOption = None,
) -> None:
    """Vouch for a blueprint: writes residency/manifest.json and its signature. A blueprint that is not valid is not
    signed. Exit codes: 0 signed, 1 the blueprint is not valid, 2 nothing could be signed."""
    at = instant(now).replace(microsecond=0)
    result, secret = _valid(folder, at), _secret(key)
    head = _git(folder)
    revision, author = revision or head[0], author or head[1]
    if not revision or not author:
        fix = "name them with --revision and --author, or sign inside a git work tree"
        raise CliError("revision and author are not known", where=str(folder), fix=fix, code=UNREADABLE)
    if serial is None:
        serial = _last_serial(folder) + 1
    said = {
        "schema_version": SCHEMA,
        "serial": serial,
        "revision": revision,
        "tree": result.sealed.tree,
        "author": author,
        "approvers": sorted(set(approver or ())),
        "valid_from": at,
        "valid_until": at + timedelta(days=valid_days) if valid_days is not None else None,
    }
    content = write_manifest(said)
    read = read_manifest(content)
    if not isinstance(read, ReadManifest):
        texts = "\n".join(problem.text() for problem in read)
        raise CliError(texts, where="--author, --approver, --revision", fix="write words", code=UNREADABLE)
    comment = f"entrepot rules, serial {serial}, tree {result.sealed.tree[:12]}"
    _write(folder, content, signature_of(content, secret, comment))
    note(f"signed {folder} as serial {serial} with key {secret.id}: {MANIFEST} and {SIGNATURE}")


def verify(
    keys: KeysOption,
    folder: FolderArgument = HERE,
    now: NowOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Whether a daemon with these keys would take a blueprint, its serial aside.

    Exit codes: 0 yes, 1 no, 2 not read.
    """
    at = instant(now)
    result = _read(folder, at)
    judged = judge_seal(result.sealed, keys, at)
    if not isinstance(judged, Signed):
        for problem in judged:
            sys.stdout.write(f"{problem.text()}\n")
        raise typer.Exit(REFUSED)
    manifest = judged.manifest
    if output in (Output.JSON, Output.YAML):
        data: dict[str, Any] = manifest.model_dump(mode="json")
        emit_data({**data, "key": judged.key.id}, output)
        return
    approved = f", approved by {', '.join(manifest.approvers)}" if manifest.approvers else ""
    age = span(max(0, int((at - manifest.valid_from).total_seconds())))
    sys.stdout.write(
        f"good: serial {manifest.serial}, revision {manifest.revision[:12]}, by {manifest.author}{approved}, signed "
        f"{age} ago with key {judged.key.id}\n"
    )


def _read(folder: Path, at: datetime) -> LoadResult:
    if not folder.is_dir():
        raise CliError(f"{folder} is not a folder", where="DIR", fix="name the blueprint's folder", code=UNREADABLE)
    return load_content(read_folder(folder), folder, at)


def _valid(folder: Path, at: datetime) -> LoadResult:
    result = _read(folder, at)
    if not result.ok:
        texts = "\n".join(problem.text() for problem in result.errors[:20])
        fix = f"correct it first: entrepot blueprint lint {folder}"
        raise CliError(f"the blueprint is not valid\n{texts}", where=str(folder), fix=fix, code=REFUSED)
    return result


def _secret(path: Path) -> SecretKey:
    try:
        return parse_secret_key(path.read_text())
    except OSError as error:
        fix = "name the secret key: entrepot policy keygen makes one"
        raise CliError(f"cannot be read: {error.strerror}", where=str(path), fix=fix, code=UNREADABLE) from None
    except (SignatureError, UnicodeDecodeError) as error:
        said, fix = (error.rule, error.fix) if isinstance(error, SignatureError) else ("not a key", "name the key")
        raise CliError(said, where=str(path), fix=fix, code=UNREADABLE) from None


def _last_serial(folder: Path) -> int:
    """That of the manifest that lies there; 0 without one."""
    try:
        found = read_manifest((folder / MANIFEST).read_bytes())
    except OSError:
        return 0
    if not isinstance(found, ReadManifest):
        fix = "name the next serial with --serial"
        raise CliError(f"the last serial cannot be read: {found[0].text()}", where=MANIFEST, fix=fix, code=UNREADABLE)
    return found.manifest.serial


def _git(folder: Path) -> tuple[str, str]:
    """HEAD and its author; empty where there is no git or no work tree. A tree with edits is not its HEAD."""
    try:
        said = _run(folder, "log", "-1", "--format=%H%n%an")
        edited = _run(folder, "status", "--porcelain", "--", ".", f":!{MANIFEST}", f":!{SIGNATURE}")
    except (OSError, subprocess.SubprocessError):
        return "", ""
    revision, _, author = said.strip().partition("\n")
    return f"{revision}{'-edited' if edited.strip() else ''}", author


def _run(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout


def _write(folder: Path, content: bytes, signature: str) -> None:
    """The signature last: a manifest without one is refused, and so is one with the signature of another."""
    try:
        (folder / MANIFEST).parent.mkdir(exist_ok=True)
        for name, written in ((MANIFEST, content), (SIGNATURE, signature.encode())):
            half = folder / f"{name}.new"
            half.write_bytes(written)
            half.replace(folder / name)
    except OSError as error:
        raise unwritable(error, str(error.filename or folder), code=UNREADABLE) from None
