"""Words for interactive work that nobody uses. As with decisions, nothing reads these texts back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from dispatcher.core.idle import CHECKED, LAST_ACTIVITY, Activity, Doubt, IdleNotice, Stage, Standing
from dispatcher.core.units import clock_time, span

_DOUBTS: Mapping[Doubt, str] = {
    Doubt.NOT_TOLD: f"nobody has written {LAST_ACTIVITY} on its job",
    Doubt.UNREADABLE: f"{LAST_ACTIVITY} or {CHECKED} on its job is no instant such as 2027-02-01T10:00:00Z",
    Doubt.EARLIER_RUN: f"{CHECKED} on its job is of an earlier run",
    Doubt.IN_THE_FUTURE: f"{LAST_ACTIVITY} or {CHECKED} on its job lies in the future",
}


def idle_text(found: Standing, now: datetime) -> str:
    """How a workload under an idle rule stands, in one sentence."""
    if found.stage is Stage.ENDED:
        return _ended(found, now)
    if found.stage is Stage.ENDING:
        return "its notice has run out, and it is being freed"
    if found.stage in (Stage.NOTICED, Stage.UNSEEN, Stage.DUE) and found.notice is not None:
        return f"{_unused(found, now)}: {_notice(found, found.notice, now)}"
    if found.activity is None:
        why = _DOUBTS[found.doubt] if found.doubt is not None else "it has no idle timeout"
        return f"its use is not known ({why}): it is not freed for being idle"
    after = f"; freed after {span(found.rule.timeout_s)} without use" if found.rule is not None else ""
    if found.stage is Stage.IDLE:
        return f"{_unused(found, now)}: notice is due"
    return f"in use: last used {_ago(found.activity.idle_since, now)}, {_looked(found.activity, now)}{after}"


def cancelled_text(found: Standing, now: datetime) -> str:
    """A notice that was taken back, and why."""
    if found.rule is None:
        return "its notice is taken back: nothing in its queue is freed for being idle any more"
    used = f"used {_ago(found.activity.idle_since, now)}" if found.activity is not None else "used"
    return f"its notice is taken back: it was {used}"


def notice_text(found: Standing, notice: IdleNotice) -> str:
    """The notice itself. The same words whenever it is told, so that a repeat is only counted."""
    after = f"not used for {span(found.rule.timeout_s)}: " if found.rule is not None else ""
    return f"{after}its slice is freed at {clock_time(notice.ends)} unless it is used before"


def freed_text(found: Standing, at: datetime) -> str:
    """The end, and how to go on. As `notice_text`."""
    return f"freed as idle at {clock_time(at)}, after notice. {_again(found)}"


def _unused(found: Standing, now: datetime) -> str:
    if found.activity is None:
        return "given notice for being idle"
    return f"not used for {span(found.activity.idle_s)}, {_looked(found.activity, now)}"


def _notice(found: Standing, notice: IdleNotice, now: datetime) -> str:
    if found.stage is Stage.DUE:
        return "its notice has run out, and it is being freed"
    if found.stage is Stage.UNSEEN:
        return f"its notice has run out, but {found.cluster} cannot be seen, so it is left alone until it can"
    if found.doubt is not None:
        return f"{_DOUBTS[found.doubt]}, so it is not freed before somebody looks"
    if now >= notice.ends:
        return "its notice has run out; it is freed when somebody has looked once more and found it unused"
    left = span(int((notice.ends - now).total_seconds()))
    return f"its slice is freed at {clock_time(notice.ends)} (in {left}) unless it is used before"


def _ended(found: Standing, now: datetime) -> str:
    ago = f" {_ago(found.ended_at, now)}" if found.ended_at is not None else ""
    return f"freed as idle{ago}. {_again(found)}"


def _again(found: Standing) -> str:
    workload = found.workload
    patch = '--type=merge -p \'{"spec":{"active":true}}\''
    return f"Start it again: kubectl -n {workload.namespace} patch workload {workload.name} {patch}"


def _looked(activity: Activity, now: datetime) -> str:
    return f"as seen {_ago(activity.checked, now)}"


def _ago(moment: datetime, now: datetime) -> str:
    return f"{span(max(0, int((now - moment).total_seconds())))} ago"
