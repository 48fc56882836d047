"""The filters of a decision: each a plain function from a candidate to what it has against it.

All run on every candidate and none stops the others, so that no reason is hidden (design section 5.1). A filter that
lacks its facts stays silent where another one already says that they are missing, and otherwise says so itself: it
never lets a candidate pass on ignorance. Adding a filter is one function and one line in `FILTERS`
(docs/add-a-term.md).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from dispatcher.core import claims
from dispatcher.core.context import Context
from dispatcher.core.decision import Detail, Fit, Reason, Rejection, Resolver, TermKind
from dispatcher.core.distance import bound_of, reaches, too_far, unknown_trip
from dispatcher.core.legality import Legality, legality
from dispatcher.core.rulings import standing_rejections
from dispatcher.core.snapshot import Link, StopPolicy

Rejections = tuple[Rejection, ...]
Filter = Callable[[Context], Rejections]

NONE: Rejections = ()


def judge(context: Context) -> Rejections:
    """Everything that stands against a candidate, in the order of `FILTERS`, each thing once."""
    return tuple(dict.fromkeys(rejection for check in FILTERS for rejection in check(context)))


def _one(reason: Reason, resolver: Resolver, detail: Detail | None = None) -> Rejections:
    return (Rejection(reason, resolver, detail or Detail()),)


# --- the cluster -------------------------------------------------------------------------------------------------


def connected(context: Context) -> Rejections:
    """Only a worker whose view is complete and fresh may be nominated (design section 9)."""
    worker = context.cluster.worker
    since = worker.observed_at if worker else None
    error = (worker.error,) if worker and worker.error else ()
    if context.cluster.link is Link.BLIND:
        return _one(Reason.BLIND, Resolver.WAIT, Detail(context.cluster.name, seen=error, since=since))
    if context.cluster.link is Link.STALE:
        return _one(Reason.STALE, Resolver.WAIT, Detail(context.cluster.name, seen=error, since=since))
    return NONE


def listed(context: Context) -> Rejections:
    """A name outside the MultiKueueConfig is ignored or an error for Kueue (kueue-contract section 5.8)."""
    if context.cluster.name in context.request.listed_clusters:
        return NONE
    return _one(Reason.NOT_LISTED, Resolver.OPERATOR, Detail(context.cluster.name))


def multikueue_active(context: Context) -> Rejections:
    """The hub's MultiKueueCluster must be there, Active and not being deleted (FR-NOM-04)."""
    view = context.cluster.multikueue
    if view is None:
        detail = Detail(context.cluster.name)
        return _one(Reason.MULTIKUEUE_INACTIVE, Resolver.OPERATOR, detail)
    found: list[Rejection] = []
    if view.deleting:
        found.append(Rejection(Reason.TERMINATING, Resolver.OPERATOR, Detail(view.name)))
    if not view.active:
        seen = tuple(text for text in (view.reason, view.message) if text)
        found.append(Rejection(Reason.MULTIKUEUE_INACTIVE, Resolver.OPERATOR, Detail(view.name, seen=seen)))
    return tuple(found)


def in_blueprint(context: Context) -> Rejections:
    """Without site facts, flavors and prices nothing is known of a cluster, so nothing goes there."""
    if context.site is not None:
        return NONE
    return _one(Reason.NOT_IN_BLUEPRINT, Resolver.OPERATOR, Detail(context.cluster.name))


# --- what must exist on it ---------------------------------------------------------------------------------------


def namespace(context: Context) -> Rejections:
    """The copy goes into the same namespace; where it is missing, MultiKueue retries silently (section 5.8)."""
    worker, wanted = context.cluster.worker, context.request.namespace
    if worker is None or not worker.synced or wanted in worker.namespaces:
        return NONE
    return _one(Reason.NAMESPACE_MISSING, Resolver.OPERATOR, Detail(wanted))


def local_queue(context: Context) -> Rejections:
    """The LocalQueue of the same name must exist and accept work."""
    if context.index is None:
        return NONE
    local, name = context.local_queue, context.request.local_queue
    if local is None:
        return _one(Reason.LOCAL_QUEUE_MISSING, Resolver.OPERATOR, Detail(f"{context.request.namespace}/{name}"))
    found: list[Rejection] = []
    if not local.active:
        found.append(Rejection(Reason.QUEUE_INACTIVE, Resolver.OPERATOR, Detail(name)))
    if local.stop_policy is not StopPolicy.NONE:
        detail = Detail(name, seen=(local.stop_policy.value,))
        found.append(Rejection(Reason.QUEUE_STOPPED, Resolver.OPERATOR, detail))
    return tuple(found)


def cluster_queue(context: Context) -> Rejections:
    """The ClusterQueue behind it must exist, be active and not be stopped (FR-NOM-04, FR-NOM-05)."""
    if context.index is None or context.local_queue is None:
        return NONE
    name, queue = context.local_queue.cluster_queue, context.queue
    if queue is None:
        return _one(Reason.QUEUE_MISSING, Resolver.OPERATOR, Detail(name))
    found: list[Rejection] = []
    if not queue.active:
        found.append(Rejection(Reason.QUEUE_INACTIVE, Resolver.OPERATOR, Detail(name)))
    if queue.stop_policy is not StopPolicy.NONE:
        detail = Detail(name, seen=(queue.stop_policy.value,))
        found.append(Rejection(Reason.QUEUE_STOPPED, Resolver.OPERATOR, detail))
    return tuple(found)


def name_taken(context: Context) -> Rejections:
    """A workload or job of the same name that is not ours would be taken for ours and deleted (FR-RAC-07)."""
    if context.index is None:
        return NONE
    request = context.request
    if (request.namespace, request.name) in context.index.foreign.workloads:
        return _one(Reason.NAME_TAKEN, Resolver.OWNER, Detail(f"{request.namespace}/{request.name}"))
    for kind in (request.job_kind, ""):
        if request.job_name and (request.namespace, kind, request.job_name) in context.index.foreign.jobs:
            return _one(Reason.NAME_TAKEN, Resolver.OWNER, Detail(f"{request.namespace}/{request.job_name}"))
    return NONE


def annotation(context: Context) -> Rejections:
    """The owner's `clusters` narrows the choice, it never widens it."""
    names = context.request.declared.clusters
    if names is None or context.cluster.name in names:
        return NONE
    return _one(Reason.NOT_IN_ANNOTATION, Resolver.OWNER, Detail(context.cluster.name, expected=names))


def avoided(context: Context) -> Rejections:
    """A cluster that refused, could not make or lost this very workload is left out for a while; where it may have
    run to its end unseen, every cluster is (core/watchdog.py, FR-RAC-03, FR-RAC-06). One whose owner has taken back
    what it had borrowed there is left out for what it would borrow again."""
    found: list[Rejection] = []
    for entry in context.request.avoided:
        concerns = entry.cluster is None or entry.cluster == context.cluster.name
        if not concerns or (entry.until is not None and entry.until <= context.now):
            continue
        if entry.while_borrowing and context.fit.borrows:
            detail = Detail(context.fit.queue or "", since=entry.since, seen=(entry.code,))
            found.append(Rejection(Reason.RECLAIMED, Resolver.WAIT, detail))
        if not entry.excluded:
            continue
        reason = Reason.FAILED_HERE if entry.until is not None else Reason.OUTCOME_UNKNOWN
        resolver = Resolver.WAIT if entry.until is not None else Resolver.OWNER
        found.append(Rejection(reason, resolver, Detail(context.cluster.name, seen=(entry.code,), since=entry.since)))
    return tuple(found)


def near_users(context: Context) -> Rejections:
    """Where people wait for answers, a cluster beyond the bound is of no use, however cheap; nor is one of which nobody
    knows how far it is (core/distance.py)."""
    plan, site = context.setting.plan, context.site
    bound_ms = bound_of(context.request, plan)
    if bound_ms is None or site is None:
        return NONE
    found: list[Rejection] = []
    for reach in reaches(context.request, plan, site, context.policy):
        if reach.trip is None:
            found.append(unknown_trip(reach.users, site))
        elif reach.trip.ms > bound_ms:
            found.append(too_far(context.request, reach.users, reach.trip, bound_ms, site))
    return tuple(found)


# --- room --------------------------------------------------------------------------------------------------------


def products(context: Context) -> Rejections:
    return context.fit.products


def quota(context: Context) -> Rejections:
    return context.fit.quota


def nodes(context: Context) -> Rejections:
    return context.fit.nodes


def held(context: Context) -> Rejections:
    """There is room, but an earlier decision promised it to somebody (FR-SCO-01)."""
    return context.fit.held


def preemption_alone(context: Context) -> Rejections:
    """A start that preempts is tried in one cluster at a time: it is not added to a standing nomination (FR-NOM-07)."""
    if context.fit.fit is not Fit.BY_PREEMPTION or not context.request.already_nominated:
        return NONE
    names = tuple(sorted(context.request.already_nominated))
    subject = context.fit.queue or ""
    return _one(Reason.QUOTA, Resolver.WAIT, Detail(subject, seen=names))


# --- law ---------------------------------------------------------------------------------------------------------


def legality_of(context: Context) -> Legality:
    """What the law says of a candidate, for as long as the run is expected to take."""
    flavors = tuple(dict.fromkeys(flavor for _, flavor in context.fit.flavors))
    end = context.dated + timedelta(seconds=context.setting.estimate.duration_s)
    return legality(context.request, context.site, context.policy, context.dated, flavors, end)


def residency(context: Context) -> Rejections:
    """Law before price: every flow of every label must be legal, and what is not known denies (docs/residency.md)."""
    return (context.law or legality_of(context)).rejections


def catalogued(context: Context) -> Rejections:
    """Data of which a catalog has said nothing for too long may have got another label, size or place since."""
    catalog = context.policy.catalog
    if catalog is None or not catalog.unknown:
        return NONE
    limit = (f"at most {catalog.source.max_age_s} s",)
    unknown = frozenset(catalog.unknown)
    return tuple(
        Rejection(Reason.CATALOG_OLD, Resolver.OPERATOR, Detail(use.data_set, expected=limit, since=catalog.read_at))
        for use in context.request.declared.data
        if use.data_set in unknown
    )


def mounted(context: Context) -> Rejections:
    """The same claim name holds other data elsewhere, or nothing (FR-SCO-17): a name alone is no data set."""
    return claims.against(context.request, context.cluster.name, context.policy)


def rules_in_force(context: Context) -> Rejections:
    """Rules that nobody vouches for any more, or a clock that cannot be right, keep classified data at rest."""
    return standing_rejections(context.request, context.policy, context.dated)


# --- money -------------------------------------------------------------------------------------------------------


def known_terms(context: Context) -> Rejections:
    """A price, a size or a route that is not known (or too old) rejects: unknown never outranks known (FR-SCO-13)."""
    return tuple(term.unknown for term in context.terms if term.unknown is not None)


REAL_MONEY = (TermKind.RUN, TermKind.DATA_IN, TermKind.HOME)
"""The terms that somebody is billed for; waiting, what an interruption may lose, stranded capacity and carbon weigh in
a choice but appear on no invoice."""


def max_cost(context: Context) -> Rejections:
    """The owner's hard cap is a filter before any ranking (FR-BUD-08); waiting and stranded amounts are no bill."""
    limit = context.request.declared.max_cost_usd_micro
    amounts = [term.amount_usd_micro for term in context.terms if term.kind in REAL_MONEY]
    if limit is None or not amounts or None in amounts:
        return NONE
    forecast = sum(amount for amount in amounts if amount is not None)
    if forecast <= limit:
        return NONE
    return _one(Reason.MAX_COST, Resolver.OWNER, Detail("max-cost", needed=forecast, found=limit))


def not_nominated(context: Context) -> Rejections:
    """Nominations of one attempt are add-only, so a cluster is nominated once (kueue-contract section 5)."""
    if context.cluster.name not in context.request.already_nominated:
        return NONE
    return _one(Reason.ALREADY_NOMINATED, Resolver.WAIT, Detail(context.cluster.name))


FILTERS: tuple[Filter, ...] = (
    connected,
    listed,
    multikueue_active,
    in_blueprint,
    rules_in_force,
    residency,
    catalogued,
    mounted,
    namespace,
    local_queue,
    cluster_queue,
    name_taken,
    avoided,
    annotation,
    near_users,
    products,
    quota,
    nodes,
    held,
    preemption_alone,
    known_terms,
    max_cost,
    not_nominated,
)
"""All filters, in the order in which reasons are told; the first one tells the headline. Order changes no verdict."""
