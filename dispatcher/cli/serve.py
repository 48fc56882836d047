"""`serve`: the daemon itself."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dispatcher.cli.errors import CliError, ExitCode
from dispatcher.cli.options import DEFAULT_LISTEN
from dispatcher.core.errors import EntrepotError, Fatal
from dispatcher.core.lease import LeaseTiming
from dispatcher.core.writing import WriteMode


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class WriteModeOption(StrEnum):
    """core.writing.WriteMode, and `auto`."""

    AUTO = "auto"
    POLICY = WriteMode.CLEARING_POLICY.value
    MERGE_PATCH = WriteMode.MERGE_PATCH_GATE.value
    REPLICA = WriteMode.FULL_REPLICA.value


StoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="ENTREPOT_STORE",
        help="where decisions are kept: a file, or postgresql://... (a URL has a password: use the variable)",
        metavar="FILE|URL",
    ),
]
HaOption = Annotated[
    bool | None,
    typer.Option(
        "--ha/--no-ha",
        help="be one of several replicas, of which one leads; on with a PostgreSQL URL, off with a file",
        show_default=False,
    ),
]
LeaseOption = Annotated[
    str,
    typer.Option(
        "--lease",
        help="seconds: a silent leader is replaced after / stops by itself after / renews every",
        metavar="DURATION/DEADLINE/RETRY",
    ),
]


ReplaySizeOption = Annotated[
    int, typer.Option("--replay-mib", min=16, help="keep at most so many MiB of what decisions saw", metavar="N")
]
ReplayDaysOption = Annotated[
    int, typer.Option("--replay-days", min=1, help="and for at most so many days", metavar="N")
]


TrustedKeysOption = Annotated[
    Path | None,
    typer.Option(
        "--trusted-keys",
        envvar="ENTREPOT_TRUSTED_KEYS",
        help="take only rules that one of these public keys has signed (a file, or a folder of *.pub)",
        metavar="PATH",
        show_default=False,
    ),
]
RollbackOption = Annotated[
    int | None,
    typer.Option("--allow-rollback", help="take rules of this older serial all the same", metavar="SERIAL"),
]
PublicOption = Annotated[
    bool,
    typer.Option("--public-without-rules", help="while no rules may be used, let data labelled public go on"),
]
ShadowOption = Annotated[
    Path | None,
    typer.Option(
        "--shadow-policy",
        envvar="ENTREPOT_SHADOW_POLICY",
        help="a candidate blueprint whose rules are evaluated beside those in force, and never rule",
        metavar="DIR",
        show_default=False,
    ),
]
TrustClockOption = Annotated[
    bool, typer.Option("--trust-clock", help="the clock is right, though the audit log knows a later time")
]


def serve(  # noqa: PLR0913 - one parameter an option: that is how typer declares a command line
    blueprint: Annotated[
        Path, typer.Option("--blueprint", envvar="ENTREPOT_BLUEPRINT", help="the blueprint's folder", metavar="DIR")
    ] = Path("config"),
    kubeconfig: Annotated[
        Path | None,
        typer.Option("--kubeconfig", help="the hub's kubeconfig; else the pod's own account", metavar="FILE"),
    ] = None,
    store: StoreOption = "entrepot.db",
    listen: Annotated[
        str, typer.Option("--listen", help="address of the API, health and metrics", metavar="HOST:PORT")
    ] = DEFAULT_LISTEN,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="dispatch for an in-memory fleet, to try it out")
    ] = False,
    speed: Annotated[
        float, typer.Option("--speed", min=0.01, help="seconds of the embedded fleet per real second", metavar="N")
    ] = 1.0,
    ha: HaOption = None,
    lease: LeaseOption = "15/10/2",
    write_mode: Annotated[
        WriteModeOption,
        typer.Option("--write-mode", help="how nominations are written; auto finds out what the hub allows"),
    ] = WriteModeOption.AUTO,
    replay_mib: ReplaySizeOption = 512,
    replay_days: ReplayDaysOption = 14,
    trusted_keys: TrustedKeysOption = None,
    allow_rollback: RollbackOption = None,
    public_without_rules: PublicOption = False,
    trust_clock: TrustClockOption = False,
    shadow_policy: ShadowOption = None,
    log_level: Annotated[LogLevel, typer.Option("--log-level", case_sensitive=False)] = LogLevel.INFO,
) -> None:
    """Run the daemon until it is signalled."""
    _go_together(embedded, kubeconfig, speed, ha)
    timing = _timing(lease)
    # Imported here: only the daemon needs the connectors, and `why` must answer at once.
    _calm()
    from dispatcher.app import serve as daemon
    from dispatcher.app.rules import TrustSettings
    from dispatcher.logs import configure
    from dispatcher.store.inputs import InputLimits

    configure(log_level.value)
    options = daemon.ServeOptions(
        blueprint, store, listen, kubeconfig, log_level.value, embedded, speed, False if embedded else ha, timing
    )
    options = replace(options, replay=InputLimits(replay_mib * 2**20, timedelta(days=replay_days)))
    trust = TrustSettings(trusted_keys, allow_rollback, public_without_rules)
    options = replace(options, trust=trust, trust_clock=trust_clock, shadow=shadow_policy)
    if write_mode is not WriteModeOption.AUTO:
        options = replace(options, write_mode=WriteMode(write_mode.value))
    try:
        asyncio.run(daemon.serve(options))
    except daemon.BlueprintInvalid as error:
        fix = f"correct the files: entrepot blueprint lint {blueprint}"
        raise CliError(str(error), where=str(blueprint), fix=fix, code=ExitCode.INVALID_BLUEPRINT) from None
    except (EntrepotError, BaseExceptionGroup) as error:
        raise _explained(error, daemon.reason_of(error)) from error


def _calm() -> None:
    """Before the daemon is imported: what is imported lives as long as we do, and looking through it again and again
    only delays a start. And before there are threads, of which each would take a heap."""
    from dispatcher.allocator import calm_allocator
    from dispatcher.runtime import calm_collector

    calm_allocator()
    calm_collector()


def _go_together(embedded: bool, kubeconfig: Path | None, speed: float, ha: bool | None) -> None:
    """Raises CliError on options that contradict each other."""
    if embedded and kubeconfig is not None:
        raise CliError(
            "--embedded has no hub to connect to",
            where="--kubeconfig",
            fix="leave one of them out",
            code=ExitCode.USAGE,
        )
    if speed != 1.0 and not embedded:
        raise CliError("a real fleet cannot be sped up", where="--speed", fix="add --embedded", code=ExitCode.USAGE)
    if embedded and ha:
        what, fix = "an embedded fleet lives in one process", "leave one of them out"
        raise CliError(what, where="--ha and --embedded", fix=fix, code=ExitCode.USAGE)


def _timing(text: str) -> LeaseTiming:
    """15/10/2 as seconds. Raises CliError."""
    try:
        duration, deadline, retry = text.split("/")
        return LeaseTiming(int(duration), float(deadline), float(retry))
    except ValueError as error:
        said = str(error) if "must" in str(error) else "it is not three numbers"
        fix = "for example --lease 15/10/2 (the default) or 8/5/1"
        raise CliError(f"{text!r}: {said}", where="--lease", fix=fix, code=ExitCode.USAGE) from None


def _explained(error: BaseException, reason: EntrepotError | None) -> CliError:
    if reason is None:
        raise error  # a bug of ours keeps its traceback
    fix = reason.fix if isinstance(reason, Fatal) else "see the log above; start again when that is repaired"
    return CliError(str(reason), where="entrepot serve", fix=fix)
