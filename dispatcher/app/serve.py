"""The process: from options to a daemon that runs until it is signalled. The only module that imports every layer."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from connectors.kubernetes import KubernetesHub, connect_hub, connect_lease, connect_worker
from dispatcher.app.catalog import catalog_desk, read_first, store_opener
from dispatcher.app.daemon import Daemon, Surroundings
from dispatcher.app.rules import TrustSettings, WatchedFolder, known_of
from dispatcher.app.shadow import ShadowFolder
from dispatcher.config import LoadResult, load_blueprint
from dispatcher.config.residency.kept import last_good
from dispatcher.config.residency.trust import TrustGate
from dispatcher.core.errors import EntrepotError, Fatal, Transient
from dispatcher.core.lease import Always, LeaseTiming
from dispatcher.core.policy import ClusterPolicy, Limits, Policy
from dispatcher.core.ports import Clock, HubPort, WorkerPort
from dispatcher.core.writing import WriteMode
from dispatcher.leader import Candidacy, identity
from dispatcher.logs import get_logger
from dispatcher.loops.replicas import missing
from dispatcher.metrics import Metrics
from dispatcher.runtime import SystemClock
from dispatcher.store import SqlStore, is_postgres, open_store, shown
from dispatcher.store.inputs import InputLimits

if TYPE_CHECKING:  # an in-memory fleet is made by those who ask for one
    from connectors.embedded import EmbeddedFleet, FastClock

READY_TRIES = 30
READY_PAUSE_S = 2.0


class BlueprintInvalid(EntrepotError):
    """The blueprint cannot be compiled; `errors` are texts with file:line:column, all of them."""

    def __init__(self, errors: tuple[str, ...]) -> None:
        super().__init__("\n".join(errors))
        self.errors = errors


@dataclass(frozen=True, slots=True)
class WatchCounter:
    """Counts what happens to the connectors' watches."""

    metrics: Metrics

    def watch(self, cluster: str, kind: str, what: str) -> None:
        self.metrics.watch_turns.labels(cluster, kind, what).inc()


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What `entrepot serve` was asked for. `speed` is how many seconds of the embedded fleet pass in a real one.

    `store` is a file of SQLite or a PostgreSQL URL. `ha` None = as the store says: replicas share a PostgreSQL, a file
    is one daemon's own.
    """

    blueprint: Path
    store: Path | str
    listen: str = "127.0.0.1:8383"
    kubeconfig: Path | None = None
    log_level: str = "info"
    embedded: bool = False
    speed: float = 1.0
    ha: bool | None = None
    lease: LeaseTiming = field(default_factory=LeaseTiming)
    write_mode: WriteMode | None = None
    """How nominations are written; None = the best that the hub allows."""
    replay: InputLimits = field(default_factory=InputLimits)
    """How much is kept of what decisions saw."""
    trust: TrustSettings = field(default_factory=TrustSettings)
    """Whose rules are taken."""
    trust_clock: bool = False
    """The clock is right, though the audit log knows a later time."""
    shadow: Path | None = None
    """A candidate blueprint, evaluated beside the one that rules."""

    @property
    def replicated(self) -> bool:
        """Whether a leader has to be elected before anything is written."""
        return is_postgres(self.store) if self.ha is None else self.ha


def load_or_refuse(folder: Path, clock: Clock) -> tuple[Policy, LoadResult]:
    """Compile the blueprint. Raises BlueprintInvalid with every error in it."""
    result = load_blueprint(folder, clock.now())
    policy = policy_of(result)
    for warning in result.warnings:
        get_logger().warning("blueprint_warning", text=warning.text())
    return policy, result


def policy_of(result: LoadResult) -> Policy:
    """Raises BlueprintInvalid: it has none."""
    if result.policy is None:
        raise BlueprintInvalid(tuple(p.text() for p in result.errors))
    return result.policy


async def load_or_fall_back(options: ServeOptions, clock: Clock) -> LoadResult:
    """The blueprint of the folder; where that is broken, the one that ruled last, which the store has kept.

    An edit that a running daemon refuses must not stop everything when its pod moves. What is wrong is told at the
    first look at the folder, as of any edit.

    Raises:
        BlueprintInvalid: it is broken, and none is kept that this version can use.
    """
    try:
        _, found = load_or_refuse(options.blueprint, clock)
    except BlueprintInvalid as broken:
        kept = await _kept(options, clock)
        before = last_good(kept, options.blueprint, clock.now()) if kept is not None else None
        if before is None:
            raise
        get_logger().error("last_good_rules", digest=policy_of(before).digest, errors=list(broken.errors))
        return before
    return found


async def _kept(options: ServeOptions, clock: Clock) -> bytes | None:
    """The files of the bundle that ruled last; a store that is not there yet is not made for the question."""
    if not is_postgres(options.store) and not await asyncio.to_thread(Path(options.store).exists):
        return None
    store = await open_when_reachable(options.store, clock)
    try:
        return (await store.audit_log.bundle_record()).kept
    finally:
        await store.close()


def embedded_fleet(result: LoadResult, clock: FastClock) -> EmbeddedFleet:
    """An in-memory hub with every cluster of the blueprint, set up with what `render` makes of it."""
    if result.blueprint is None:
        raise BlueprintInvalid(tuple(p.text() for p in result.errors))
    from connectors.embedded import EmbeddedFleet
    from dispatcher.config.render import render

    return EmbeddedFleet.of_plan(render(result.blueprint), clock)


def embedded_surroundings(fleet: EmbeddedFleet, folder: Path, clock: FastClock, first: LoadResult) -> Surroundings:
    """Surroundings on the embedded fleet."""
    source = WatchedFolder(folder, clock, first)
    return Surroundings(fleet.hub, lambda cluster: fleet.workers[cluster.name], clock, source)


async def serve(options: ServeOptions, system: SystemClock | None = None) -> None:
    """Run the daemon until signalled. `system` is the machine's clock; None makes one.

    Raises:
        Fatal: a precondition does not hold; `fix` says what to change.
        BlueprintInvalid: the blueprint cannot be compiled.
    """
    system = system or SystemClock()
    first = await load_or_fall_back(options, system)
    async with contextlib.AsyncExitStack() as stack:
        if options.embedded:
            from connectors.embedded import FastClock

            clock = FastClock(options.speed, system.now())
            around = embedded_surroundings(embedded_fleet(first, clock), options.blueprint, clock, first)
        else:
            around = await _kubernetes(options, system, first, stack)
        await wait_until_dispatchable(around.hub, around.clock)
        store = await open_when_reachable(options.store, around.clock, options.replay)
        stack.push_async_callback(store.close)
        if around.candidacy is None:
            around = replace(around, alone=await lead_alone(store, around.clock))
        source = WatchedFolder(options.blueprint, around.clock, first, TrustGate(options.trust))
        around = replace(around, source=source, files_of=source.files_of)
        record = await store.audit_log.bundle_record()
        get_secret = around.hub.get_secret if isinstance(around.hub, KubernetesHub) else None
        desk = catalog_desk(source, around.clock, get_secret)
        around = replace(around, catalog=desk, open_store=store_opener(around.clock, get_secret))
        start = await read_first(source, desk, policy_of(first))
        policy = source.begin(start, known_of(record, trust_clock=options.trust_clock), record.kept)
        if options.shadow is not None:
            around = replace(around, shadow=ShadowFolder(options.shadow, around.clock, desk.answer))
        daemon = Daemon(around, policy, store, options.listen)
        source.missing = partial(missing, daemon.state)
        get_logger().info(
            "starting",
            policy=policy.digest,
            rules=policy.seal.trust,
            listen=options.listen,
            clusters=list(policy.clusters),
            store=shown(options.store),
            stands_as=around.candidacy.me if around.candidacy is not None else None,
        )
        await run_until_signalled(daemon.run)
        get_logger().info("stopped")


async def _kubernetes(
    options: ServeOptions, clock: Clock, first: LoadResult, stack: contextlib.AsyncExitStack
) -> Surroundings:
    """Real clusters. The pace of heartbeats follows the silence limit of the blueprint that the daemon starts with."""
    metrics = Metrics()
    counter = WatchCounter(metrics)
    silence_limit_s = first.policy.limits.silence_limit_s if first.policy is not None else Limits().silence_limit_s
    hub = connect_hub(
        options.kubeconfig, clock, silence_limit_s=silence_limit_s, observer=counter, write_mode=options.write_mode
    )
    stack.push_async_callback(hub.close)

    def connect(cluster: ClusterPolicy) -> WorkerPort:
        return connect_worker(
            cluster.name, cluster.credentials, hub, clock, silence_limit_s=silence_limit_s, observer=counter
        )

    candidacy = None
    if options.replicated:
        lease = connect_lease(options.kubeconfig, clock, deadline_s=options.lease.renew_deadline_s / 2)
        stack.push_async_callback(lease.close)
        candidacy = Candidacy(lease, identity(), options.lease)
    source = WatchedFolder(options.blueprint, clock, first)
    return Surroundings(hub, connect, clock, source, candidacy, metrics=metrics)


async def open_when_reachable(target: Path | str, clock: Clock, replay: InputLimits | None = None) -> SqlStore:
    """Open the store, waiting for a database that is not there yet.

    Raises:
        Fatal: it is no store of ours, or it did not answer for a minute.
    """
    last = ""
    for _ in range(READY_TRIES):
        try:
            return await open_store(target, replay=replay)
        except Transient as error:
            last = str(error)
            get_logger().warning("store_not_reachable", error=last)
        await clock.sleep(READY_PAUSE_S)
    raise Fatal(f"the store could not be opened: {last}", "check --store (or ENTREPOT_STORE) and the database")


async def lead_alone(store: SqlStore, clock: Clock) -> Always:
    """Begin the next term for a daemon without replicas: a second one on the same store is then found out."""
    term = await store.term() + 1
    await store.lead(term, identity(), clock.now())
    return Always(term)


async def wait_until_dispatchable(hub: HubPort, clock: Clock) -> None:
    """Ask the hub whether it can be dispatched for, until it answers; refuse to start where it cannot.

    Raises:
        Fatal: the hub must be changed first, or it did not answer for a minute.
    """
    last = ""
    for _ in range(READY_TRIES):
        try:
            await hub.check_ready()
            return
        except Transient as error:
            last = str(error)
            get_logger().warning("hub_not_reachable", error=last)
        await clock.sleep(READY_PAUSE_S)
    raise Fatal(f"the hub did not answer: {last}", "check --kubeconfig and the network between here and the hub")


async def run_until_signalled(main: Callable[[], Awaitable[None]]) -> None:
    """Run `main` until SIGTERM or SIGINT, then cancel it and wait for its clean end."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(_as_coroutine(main))
        waiter = group.create_task(stop.wait())
        await asyncio.wait({task, waiter}, return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()
        task.cancel()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(name)


async def _as_coroutine(main: Callable[[], Awaitable[None]]) -> None:
    await main()


def reason_of(error: BaseException) -> EntrepotError | None:
    """The error of ours inside a TaskGroup's exception group, if that is what ended the daemon."""
    if isinstance(error, EntrepotError):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next((found for inner in error.exceptions if (found := reason_of(inner))), None)
    return None
