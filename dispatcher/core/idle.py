"""Interactive work that nobody uses: when its owner is told, and when its slice is freed (docs/interactive.md).

A life on the hub's Workload: used, noticed, ending, ended. `step` is the table up to the end. What it stands on is said
by others: who uses a notebook is seen by whatever stands before it (a gateway, an exporter that reads the notebook's
own API), and written on the job as two instants: when it was last used, and when somebody last looked. Only what was
looked at counts. Where nobody looks any more, idleness does not grow, so a dead exporter ends nobody's work; where
nobody ever looked, nothing is known, and nothing is done.

Notice and end stand on the Workload itself. So they survive this process and its store, every replica sees the same
ones, and its owner does.

The end takes three writes. It is marked, so that nothing places the work again; evicted by its check, as whatever ends
an attempt (kueue-contract section 6); and only when the hub has let go of it is it set inactive. Setting it inactive
while a copy runs makes MultiKueue delete the copy as one that differs: the hub's job then counts pods for ever that
nobody has, and its quota never comes back (seen on v0.19.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from dispatcher.core.bids import keys_of, plan_of
from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.illegal import may_end
from dispatcher.core.instants import stamp
from dispatcher.core.literals import LiteralError, parse_instant
from dispatcher.core.policy import DEFAULT_IDLE_NOTICE_S, Policy
from dispatcher.core.snapshot import HubView, Link, WorkerView, link_of
from dispatcher.core.waiting import Phase, standing
from dispatcher.core.workload import HubWorkload, OwnerMeta

LAST_ACTIVITY = "entrepot.dev/last-activity"
CHECKED = "entrepot.dev/activity-checked"
"""On the job, written by what watches it."""
NOTICE = "entrepot.dev/idle-notice"
ENDING = "entrepot.dev/idle-ending"
ENDED = "entrepot.dev/idle-ended"
"""On the Workload, written here: an interval from the notice to the end; the instant of the end, first while it is on
its way and then when it is over."""
EVICTED_WITHIN_S = 600
"""Kueue evicts within about a second of the write that asks for it; a later eviction is another one."""
SKEW_S = 60
"""So far the clock of whoever watches may be off without its word losing its meaning."""


@dataclass(frozen=True, slots=True)
class IdleRule:
    """After how long without use notice is given, and how long after that the slice is freed."""

    timeout_s: int
    notice_s: int


class Doubt(StrEnum):
    """Why nothing is known of its use. Each of them ends nothing."""

    NOT_TOLD = "not-told"
    UNREADABLE = "unreadable"
    EARLIER_RUN = "earlier-run"
    """Nobody has looked since this run began."""
    IN_THE_FUTURE = "in-the-future"


@dataclass(frozen=True, slots=True)
class Activity:
    """What was seen of its use: not used since `idle_since`, as far as `checked`."""

    idle_since: datetime
    checked: datetime

    @property
    def idle_s(self) -> int:
        """Seconds without use that somebody has seen."""
        return max(0, int((self.checked - self.idle_since).total_seconds()))


@dataclass(frozen=True, slots=True)
class IdleNotice:
    given: datetime
    ends: datetime

    @property
    def text(self) -> str:
        """As it stands on the Workload: an ISO 8601 interval."""
        return f"{stamp(self.given)}/{stamp(self.ends)}"


class Stage(StrEnum):
    """How a workload under an idle rule stands. Stable codes: they are in the API and in metrics."""

    UNKNOWN = "unknown"
    """It runs, and of its use nothing is known."""
    USED = "used"
    IDLE = "idle"
    """Not used for the whole timeout; notice is due."""
    NOTICED = "noticed"
    DUE = "due"
    """Not used until the notice ran out; its end is due."""
    UNSEEN = "unseen"
    """The same on a cluster that cannot be seen: nothing that runs there is touched."""
    ENDING = "ending"
    """Its end is on its way, and is not taken back any more."""
    ENDED = "ended"


class Course(StrEnum):
    """What is done now. Stable codes: they are in the audit log and in metrics."""

    NONE = "none"
    NOTICE = "notice"
    CANCEL = "cancel"
    END = "end"
    EVICT = "evict"
    CLOSE = "close"
    """Set inactive what the hub has let go of."""


DECIDED = frozenset({Course.NOTICE, Course.CANCEL, Course.END})
"""What is on record before it is done; the others carry out what was decided."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One workload under an idle rule. `since` is when this run began, `ended_at` when its end was decided, `check` the
    one by which it is evicted."""

    workload: HubWorkload
    cluster: ClusterName | None
    stage: Stage
    course: Course = Course.NONE
    rule: IdleRule | None = None
    since: datetime | None = None
    activity: Activity | None = None
    doubt: Doubt | None = None
    notice: IdleNotice | None = None
    ended_at: datetime | None = None
    check: str = ""


def step(
    rule: IdleRule | None, seen: Activity | Doubt, notice: IdleNotice | None, now: datetime, visible: bool
) -> tuple[Stage, Course]:
    """The table. `notice` is one of this run; `visible`: the cluster on which it runs can be seen.

    A notice that has begun ends in one of two ways only: it is taken back, since it was used after all (or the rule is
    another now), or somebody looked at the end of it and found it unused. What is not known lets it stand.
    """
    if notice is None:
        if rule is None or isinstance(seen, Doubt):
            return Stage.UNKNOWN, Course.NONE
        return (Stage.USED, Course.NONE) if seen.idle_s < rule.timeout_s else (Stage.IDLE, Course.NOTICE)
    if rule is None:
        return Stage.USED, Course.CANCEL
    if isinstance(seen, Doubt):
        return Stage.NOTICED, Course.NONE
    if (notice.given - seen.idle_since).total_seconds() < rule.timeout_s:
        return Stage.USED, Course.CANCEL
    if now < notice.ends or seen.checked < notice.ends:
        return Stage.NOTICED, Course.NONE
    return (Stage.DUE, Course.END) if visible else (Stage.UNSEEN, Course.NONE)


def notice_of(rule: IdleRule, seen: Activity, since: datetime, now: datetime) -> IdleNotice:
    """The notice that is due. It begins when all that it stands on is past, by whichever clock that was said."""
    given = max(now, seen.checked, since)
    given = given.replace(microsecond=0) + timedelta(seconds=1 if given.microsecond else 0)
    return IdleNotice(given, given + timedelta(seconds=rule.notice_s))


# --- reading -----------------------------------------------------------------------------------------------------


def activity_of(owner: OwnerMeta | None, since: datetime, now: datetime) -> Activity | Doubt:
    """What its job says of its use in the run that began at `since`."""
    keys = dict(owner.keys) if owner is not None else {}
    last_text, checked_text = keys.get(LAST_ACTIVITY), keys.get(CHECKED)
    if last_text is None:
        return Doubt.NOT_TOLD
    try:
        last = parse_instant(last_text)
        checked = max(last, parse_instant(checked_text)) if checked_text is not None else last
    except LiteralError:
        return Doubt.UNREADABLE
    skew = timedelta(seconds=SKEW_S)
    if checked > now + skew:
        return Doubt.IN_THE_FUTURE
    if checked < since - skew:
        return Doubt.EARLIER_RUN
    return Activity(max(last, since), checked)


def standing_notice(workload: HubWorkload, since: datetime) -> IdleNotice | None:
    """The notice on it, if it was given in this run; one of an earlier run, or that does not read, is none."""
    given_text, slash, ends_text = workload.idle_notice.partition("/")
    if not slash:
        return None
    try:
        notice = IdleNotice(parse_instant(given_text), parse_instant(ends_text))
    except LiteralError:
        return None
    return notice if notice.given >= since and notice.ends >= notice.given else None


def ended_at(workload: HubWorkload) -> datetime | None:
    """When it was freed as idle, if that is why it does not run: not where somebody has stopped it since."""
    if workload.active or workload.finished or not workload.idle_ended:
        return None
    try:
        at = parse_instant(workload.idle_ended)
    except LiteralError:
        return None
    evicted = workload.evicted_at
    return at if evicted is None or abs((evicted - at).total_seconds()) <= EVICTED_WITHIN_S else None


# --- rules -------------------------------------------------------------------------------------------------------


def any_rule(policy: Policy) -> bool:
    """Whether anything at all may be ended for being idle."""
    timeouts = [plan.idle_timeout_s for plan in policy.classes.values()]
    timeouts += [queue.idle_timeout_s for queue in policy.queues.values()]
    return any(timeout is not None for timeout in timeouts)


def rule_of(workload: HubWorkload, owner: OwnerMeta | None, policy: Policy) -> IdleRule | None:
    """The queue's timeout, else that of its class; None: it may be idle for ever.

    The queue's goes first and holds for whatever class its jobs name, so that nobody keeps a slice by another label.
    """
    queue = policy.queues.get(workload.cluster_queue) if workload.cluster_queue is not None else None
    # The class as its job names it, whatever else of the job cannot be understood: a slip in one key keeps no slice.
    plan = plan_of(workload, keys_of(workload, owner), policy)
    of_queue = queue.idle_timeout_s if queue is not None else None
    timeout_s = of_queue if of_queue is not None else plan.idle_timeout_s if plan is not None else None
    if timeout_s is None:
        return None
    return IdleRule(timeout_s, plan.idle_notice_s if plan is not None else DEFAULT_IDLE_NOTICE_S)


# --- looking -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sight:
    """What one look sees."""

    hub: HubView
    workers: Mapping[ClusterName, WorkerView]
    policy: Policy
    now: datetime


def look(sight: Sight) -> dict[WorkloadUid, Standing]:
    """Everything that runs under an idle rule, or with a notice, or was freed as idle. In the order of uids."""
    found: dict[WorkloadUid, Standing] = {}
    watched = any_rule(sight.policy)
    for uid, workload in sorted(sight.hub.workloads.items()):
        freed = ended_at(workload)
        if workload.idle_ending and not workload.finished and not workload.deleting:
            found[uid] = _ending(workload, sight)
        elif freed is not None:
            found[uid] = Standing(workload, None, Stage.ENDED, ended_at=freed)
        elif workload.cluster_name is not None and (watched or workload.idle_notice):
            one = _running(workload, workload.cluster_name, sight)
            if one is not None:
                found[uid] = one
    return found


def _ending(workload: HubWorkload, sight: Sight) -> Standing:
    """What is next on the way to the end: where it runs it is evicted, once; what the hub has let go of, or has taken
    up again meanwhile, is set inactive."""
    try:
        at = parse_instant(workload.idle_ending)
    except LiteralError:
        at = sight.now
    course, check = Course.NONE, None
    if workload.cluster_name is not None:
        check = may_end(workload, sight.hub) if workload.active else None
        course = Course.EVICT if check is not None else Course.NONE
    elif workload.quota_reserved_at is None or workload.evicted_at is None:
        course = Course.CLOSE
    return Standing(workload, workload.cluster_name, Stage.ENDING, course, ended_at=at, check=check or "")


def _running(workload: HubWorkload, cluster: ClusterName, sight: Sight) -> Standing | None:
    since = workload.admitted_at
    if since is None or standing(workload, sight.hub).phase is not Phase.PLACED:
        return None
    owner = sight.hub.owners.get(workload.owner.uid) if workload.owner is not None else None
    rule, notice = rule_of(workload, owner, sight.policy), standing_notice(workload, since)
    if rule is None and notice is None:
        return None
    seen = activity_of(owner, since, sight.now)
    limit_s = sight.policy.limits.silence_limit_s
    visible = link_of(sight.workers.get(cluster), limit_s, sight.now) is Link.CONNECTED
    stage, course = step(rule, seen, notice, sight.now, visible)
    activity, doubt = (None, seen) if isinstance(seen, Doubt) else (seen, None)
    return Standing(workload, cluster, stage, course, rule, since, activity, doubt, notice)
