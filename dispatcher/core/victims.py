"""What a start costs those who are stopped for it: typed, priced, and a part of the choice.

Kueue stops whom it stops (core/preemption.py); what we choose is the cluster, and with it who that is. A victim costs
its work since the last checkpoint and its restart, at the price of what it holds and of an hour of delay to its class.
Whoever is of unknown class or price is not free: a cluster where somebody's loss is not known comes after all where
every loss is. Elapsed time is read off `now`, and of our own work the hub knows more than its worker
(`Snapshot.stakes`), so this is done for each decision anew, after candidates were weighed (memo.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dispatcher.core.context import Context, Setting
from dispatcher.core.decision import Candidate, Detail, Fit, Line, Reason, Rejection, Resolver, TermKind, Victim
from dispatcher.core.offers import price_of
from dispatcher.core.policy import ClassPolicy, ComputePrice, Policy
from dispatcher.core.preemption import Target
from dispatcher.core.prices import div_half_up
from dispatcher.core.slate import Slate
from dispatcher.core.snapshot import Stake, WorkerCopy, digest_of, gpus_of
from dispatcher.core.terms.bills import billed, delay_line


def victims_of(context: Context) -> tuple[Victim, ...]:
    """Whom Kueue would stop, in the order in which it would, with the price of what they hold."""
    return tuple(_victim(context, target) for target in context.fit.targets)


def _victim(context: Context, target: Target) -> Victim:
    copy = target.holder.copy
    return Victim(
        key=f"{copy.namespace}/{copy.name}",
        ours=copy.ours,
        queue=target.holder.queue,
        priority=copy.priority,
        gpus=gpus_of(copy.pod_sets),
        reclaimed=target.reclaimed,
        began_at=copy.admitted_at,
        usd_micro_per_hour=_hourly(context, copy),
    )


def _hourly(context: Context, copy: WorkerCopy) -> int | None:
    """What an hour of everything that it holds costs; None as soon as one price is not known."""
    total = 0
    for _, count, per_pod, name in copy.pod_sets:
        flavor = context.site.flavors.get(name) if context.site is not None and name is not None else None
        if context.site is None or flavor is None:
            return None
        price = price_of(context.site, flavor, bool(per_pod.gpus()), context.policy.prices, context.dated)
        if not isinstance(price, ComputePrice):
            return None
        total += count * per_pod.billed_milli() * price.usd_micro_per_hour
    return div_half_up(total, 1000)


def with_losses(slate: Slate, setting: Setting, stakes: Mapping[str, Stake]) -> Slate:
    """The slate with what its preemptions cost in the totals, and closed where somebody may not be stopped."""
    priced = {c.cluster: _priced(c, setting, stakes) for c in slate.candidates if c.fit is Fit.BY_PREEMPTION}
    if not priced:
        return slate
    candidates = tuple(priced.get(c.cluster, c) for c in slate.candidates)
    told = tuple((c.cluster, c.preempts, c.total_usd_micro, c.rejections) for c in priced.values())
    seen = digest_of((slate.snapshot_digest, tuple(stakes.items()))) if stakes else slate.snapshot_digest
    return replace(
        slate,
        candidates=candidates,
        eligible=tuple(c for c in candidates if c.eligible),
        candidates_digest=digest_of((slate.candidates_digest, told)),
        snapshot_digest=seen,
    )


def _priced(candidate: Candidate, setting: Setting, stakes: Mapping[str, Stake]) -> Candidate:
    found = [_with_loss(victim, stakes.get(victim.key), setting) for victim in candidate.preempts]
    victims = tuple(victim for victim, _ in found)
    lost = billed(TermKind.PREEMPTION, [line for _, line in found])
    total = candidate.total_usd_micro + (lost.amount_usd_micro or 0) if candidate.total_usd_micro is not None else None
    return replace(
        candidate,
        preempts=victims,
        terms=(*candidate.terms, lost),
        total_usd_micro=total,
        rejections=(*candidate.rejections, *_forbidden(candidate, victims, setting.policy)),
    )


def _with_loss(victim: Victim, stake: Stake | None, setting: Setting) -> tuple[Victim, Line]:
    plan = _plan(victim, stake, setting.policy)
    checkpoint_s = stake.checkpoint_interval_s if stake is not None and victim.ours else None
    ran_s = max(0, int((setting.now - victim.began_at).total_seconds())) if victim.began_at is not None else 0
    # Until its first checkpoint it loses everything, afterwards half an interval on average.
    lost_s = ran_s if checkpoint_s is None or ran_s < checkpoint_s else checkpoint_s // 2
    what = f"{victim.key} gives back what it borrowed" if victim.reclaimed else f"{victim.key} gives way"
    if plan is None or victim.usd_micro_per_hour is None:
        line, cost = Line(f"{what}, and what it loses is not known", 0, "second", 0, 0), None
    else:
        hourly = victim.usd_micro_per_hour + plan.delay_price_usd_micro_per_hour
        line = delay_line(what, lost_s + plan.restart_s, hourly)
        cost = line.amount_usd_micro
    # All fields by name: `replace` takes five times as long, and a decision of a full fleet asks a hundred times.
    known = Victim(
        key=victim.key,
        ours=victim.ours,
        queue=victim.queue,
        priority=victim.priority,
        gpus=victim.gpus,
        reclaimed=victim.reclaimed,
        began_at=victim.began_at,
        usd_micro_per_hour=victim.usd_micro_per_hour,
        workload_class=plan.workload_class.value if plan is not None else None,
        checkpoint_s=checkpoint_s,
        lost_s=lost_s,
        restart_s=plan.restart_s if plan is not None else None,
        cost_usd_micro=cost,
    )
    return known, line


def _plan(victim: Victim, stake: Stake | None, policy: Policy) -> ClassPolicy | None:
    """The plan of its class, as its owner says; else that of the queue which it is in, which is all that is known of
    local work."""
    named = stake.workload_class if stake is not None and victim.ours else None
    if named is None and victim.queue in policy.queues:
        named = policy.queues[victim.queue].default_class
    return policy.classes.get(named) if named is not None else None


def _forbidden(candidate: Candidate, victims: tuple[Victim, ...], policy: Policy) -> tuple[Rejection, ...]:
    """A class that is not to be stopped for more urgent work is not stopped by sending it there. What is borrowed is
    another matter: its owner takes it back, whoever holds it (Kueue's own shares stay in force)."""
    unstoppable = {kind.value for kind, plan in policy.classes.items() if not plan.preemptible}
    kept = [victim for victim in victims if not victim.reclaimed and victim.workload_class in unstoppable]
    if not kept:
        return ()
    classes = tuple(sorted({victim.workload_class or "" for victim in kept}))
    detail = Detail(candidate.queue or "", expected=classes, seen=tuple(victim.key for victim in kept))
    return (Rejection(Reason.NOT_PREEMPTIBLE, Resolver.WAIT, detail),)
