"""Words for what the watchdog finds. As with decisions, nothing reads these texts back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from dispatcher.core.policy import Away, Policy, Unreachable
from dispatcher.core.rulings import standing_of
from dispatcher.core.seal import Trouble, Trust, age_s
from dispatcher.core.units import clock_time, span
from dispatcher.core.watchdog import TAKEN_BACK, Finding, FindingCode


def finding_text(finding: Finding, now: datetime) -> str:
    """One finding in one sentence, with its age and what to do where a person must do it (FR-CLI-01)."""
    age = f" {span(max(0, int((now - finding.since).total_seconds())))} ago" if finding.since is not None else ""
    return _TEXTS[finding.code](finding, age)


def _reason(finding: Finding) -> str:
    detail = finding.detail
    said = [part for part in (f"check {detail.check}" if detail.check else "", detail.reason) if part]
    return f" ({': '.join(said)})" if said else ""


def _left_behind(finding: Finding, age: str) -> str:
    names = ", ".join(finding.detail.names)
    return f"evicted{age}, and the nomination of {names} was left behind: it is cleared before anything else is decided"


def _not_latched(finding: Finding, age: str) -> str:
    return (
        f"{finding.cluster} admitted it{age} and the hub has not taken notice: it may run there unseen. Look for a job "
        "of the same name on that cluster, and for errors of MultiKueue in the log of the hub's Kueue"
    )


def _stopped(finding: Finding, age: str) -> str:
    return f"not running: evicted on {finding.cluster}{age}{_reason(finding)}; it is dispatched again"


def _reclaimed(finding: Finding, age: str) -> str:
    return (
        f"not running: the quota that it had borrowed on {finding.cluster} was taken back{age}{_reason(finding)}; "
        "it is dispatched again, and borrows nothing there for a while"
    )


def _hub_preempted(finding: Finding, age: str) -> str:
    taken_back = finding.detail.reason.startswith(TAKEN_BACK)
    why = "the quota that it had borrowed was taken back" if taken_back else "more urgent work needed its quota"
    return f"not running: {why} on the hub{age}{_reason(finding)}; it is dispatched again when it has quota"


def _refused(what: str) -> Callable[[Finding, str], str]:
    def text(finding: Finding, age: str) -> str:
        return f"not running: {what} on {finding.cluster}{age}{_reason(finding)}; that cluster is left out for a while"

    return text


def _out_of_sync(finding: Finding, age: str) -> str:
    where = f"on {finding.cluster}" if finding.cluster is not None else "on its cluster"
    return (
        f"failed to dispatch{age}: the job {where} differs from what was submitted (OutOfSync), so nothing ran. See "
        "which webhook there changes pod templates"
    )


def _vanished(finding: Finding, age: str) -> str:
    return f"not running: its copy on {finding.cluster} was deleted there{age}; it is dispatched again"


def _outcome(finding: Finding, age: str) -> str:
    return (
        f"its pods on {finding.cluster} had ended when the copy was removed there{age}, before the hub read the "
        "result: it may have finished, so it is not started again. See its outputs, then delete the job or submit it "
        "anew; leave out ttlSecondsAfterFinished or set it to 5 minutes at least"
    )


def _stuck(finding: Finding, age: str) -> str:
    kind, _, name = finding.detail.job.partition(" ")
    namespace = finding.key.partition("/")[0]
    patch = '--subresource=status --type=merge -p \'{"status":{"active":0,"ready":0}}\''
    fix = f": kubectl -n {namespace} patch job {name} {patch}" if kind == "Job" else ""
    return (
        f"evicted{age} and still holding its quota: the {kind or 'job'} on the hub counts pods of a copy that no "
        f"cluster has any more. Bring its status up to date{fix}, or delete and submit it anew"
    )


def _twice(finding: Finding, age: str) -> str:
    names = ", ".join(finding.detail.names)
    namespace, _, name = finding.key.partition("/")
    patch = f'kubectl -n {namespace} patch workload {name} --type=merge -p \'{{"spec":{{"active":false}}}}\''
    return (
        f"RUNS TWICE: it has pods on {names}; the one on {finding.cluster} is surplus and is stopped, where Entrepot "
        f"may do so (deploy/worker-stop). Else stop it now, there: {patch}"
    )


def _hub_runs_it(finding: Finding, age: str) -> str:
    names = ", ".join(finding.detail.names)
    return (
        f"the hub runs it as well as {finding.cluster}: {finding.detail.job} has {names} on the hub. Its controller "
        "there does not obey managedBy: take that controller off the hub"
    )


def _name_taken(finding: Finding, age: str) -> str:
    return (
        f"not running: {finding.cluster} has a {finding.detail.job} of its own in this namespace; that cluster is left "
        "out for a while. Rename one of the two"
    )


def _cluster_gone(finding: Finding, age: str) -> str:
    names = ", ".join(finding.detail.names)
    if finding.cluster is None:
        are = "is no cluster" if len(finding.detail.names) == 1 else "are no clusters"
        return f"{names} {are} of this hub any more: the nomination there is taken back, and it is decided again"
    return (
        f"placed on {names}, which is no cluster of this hub any more: what runs there goes on unseen. Put its "
        "MultiKueueCluster back, or delete the job and submit it anew"
    )


def _cluster_away(finding: Finding, age: str) -> str:
    """`since` is when its loss clock began, which may be later than when it was last seen."""
    lost = f"{finding.cluster} cannot be reached, lost{age}"
    if finding.detail.awaits == "move":
        return (
            f"{lost}: that is longer than its work is to wait, and its attempt is being ended. It starts elsewhere "
            f"once the hub counts no pods of it on {finding.cluster}"
        )
    return (
        f"{lost}: it may run there still, and stays. Decide: wait, or give it up there by setting spec.active of its "
        "Workload to false and then to true; Kueue gives the cluster up itself after multiKueue.workerLostTimeout"
    )


def _revoked(finding: Finding, age: str) -> str:
    names = ", ".join(finding.detail.names)
    return (
        f"check {finding.detail.check} was taken back{age}, after it had been nominated to {names}: its attempt is "
        "being ended, and it is decided again once that check is Ready"
    )


def _preempts_in_vain(finding: Finding, age: str) -> str:
    return (
        f"{finding.cluster} did not make room for it within its class's patience: its attempt there is being ended, "
        "and that cluster is left out for a while"
    )


_AWAITED = {
    "rule-says-hold": "its rule says that it stays: it waits until the rule, a fact or an exception lets it start",
    "move": "its rule says drain, and nothing moves work yet: it stays where it is. Stop it, or ask for an exception",
    "legal-checkpoint-store": "its checkpoints may not go where they go, so it stays and nothing is copied: name a "
    "legal store, stop it, or ask for an exception",
    "fact": "whether it may stay is not known: see entrepot policy facts, and have the missing fact attested",
    "sight": "its cluster cannot be seen, so it is left alone until it can",
    "clock": "the wall clock was set, and by the daemon's own time it may stay: a wrong clock ends nothing that runs. "
    "Correct the clock, or restart the daemon if it is right",
    "flavor": "on which GPUs it would run is not known, so it stays. See its copy on the cluster",
}


def _illegal(what: str) -> Callable[[Finding, str], str]:
    def text(finding: Finding, age: str) -> str:
        detail = finding.detail
        by = f" by {clock_time(detail.deadline)}" if detail.deadline is not None else ""
        awaited = _AWAITED.get(detail.awaits, "")
        return f"{what} on {finding.cluster}, where the law forbids it{age} ({detail.rule}); {awaited}{by}"

    return text


def _ended_by_law(finding: Finding, age: str) -> str:
    return (
        f"its attempt on {finding.cluster} is being ended: the law forbids it there{age} ({finding.detail.rule}). "
        "It is queued again and goes only where that is legal now"
    )


_TEXTS: Mapping[FindingCode, Callable[[Finding, str], str]] = {
    FindingCode.LEFT_BEHIND: _left_behind,
    FindingCode.NOT_LATCHED: _not_latched,
    FindingCode.COPY_EVICTED: _stopped,
    FindingCode.COPY_RECLAIMED: _reclaimed,
    FindingCode.COPY_REJECTED: _refused("rejected by an admission check"),
    FindingCode.COPY_DEACTIVATED: _refused("deactivated"),
    FindingCode.COPY_OUT_OF_SYNC: _out_of_sync,
    FindingCode.COPY_VANISHED: _vanished,
    FindingCode.PROVISIONING_FAILED: _refused("capacity was not provided"),
    FindingCode.NAME_TAKEN: _name_taken,
    FindingCode.OUTCOME_UNKNOWN: _outcome,
    FindingCode.EVICTION_STUCK: _stuck,
    FindingCode.TWO_COPIES_RUNNING: _twice,
    FindingCode.HUB_RUNS_IT: _hub_runs_it,
    FindingCode.HUB_PREEMPTED: _hub_preempted,
    FindingCode.CLUSTER_GONE: _cluster_gone,
    FindingCode.CLUSTER_AWAY: _cluster_away,
    FindingCode.APPROVAL_REVOKED: _revoked,
    FindingCode.PREEMPTION_IN_VAIN: _preempts_in_vain,
    FindingCode.ILLEGAL_WAITING: _illegal("nominated"),
    FindingCode.ILLEGAL_RUNNING: _illegal("RUNS"),
    FindingCode.ILLEGAL_ENDED: _ended_by_law,
}


def tolerance_text(rule: Unreachable, lost_s: float | None) -> str:
    """What becomes of work whose cluster cannot be reached, and when; `lost_s` None: no loss counts at present."""
    if rule.course is Away.STAY:
        return "It stays there (on_unreachable: stay)"
    if rule.course is Away.ASK:
        return "It stays there until somebody decides (on_unreachable: ask)"
    after = f"on_unreachable: move after {span(rule.after_s)}"
    if lost_s is None:
        return f"It stays there while losses do not count ({after})"
    left_s = max(0, rule.after_s - int(lost_s))
    return f"Its attempt ends in {span(left_s)} ({after})" if left_s else f"Its attempt is being ended ({after})"


def law_text(policy: Policy, now: datetime) -> str:
    """The rules in force, in a sentence: whose they are, how old, and what is wrong with them."""
    seal, found = policy.seal, standing_of(policy, now)
    if seal.trust is Trust.MISSING:
        public = "data labelled public goes on" if seal.public_goes_on else "nothing is dispatched"
        return f"there are no rules that may be used: {public}, and what runs is left alone"
    age = age_s(seal, now)
    aged = f", vouched for {span(age)} ago" if age is not None else ""
    whose = "unsigned: anybody who can write the blueprint can change them"
    if seal.trust is Trust.SIGNED:
        whose = f"serial {seal.serial} by {seal.actor}, signed with key {seal.key}"
    if found is None:
        return f"{whose}{aged}"
    return f"{whose}{aged}. Classified work waits: {_TROUBLES[found.trouble]}"


_TROUBLES = {
    Trouble.MISSING: "there are no rules",
    Trouble.TOO_OLD: "nobody vouched for the rules within their max_age: see what keeps new ones from coming",
    Trouble.EXPIRED: "the rules have expired: review and sign them again",
    Trouble.CLOCK: "the clock shows less than it has already shown: correct it, or start with --trust-clock",
}
