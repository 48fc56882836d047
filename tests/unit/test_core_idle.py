"""When interactive work is given notice and when its slice is freed: the table, what it stands on, and its laws."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.explain_idle import cancelled_text, freed_text, idle_text, notice_text
from dispatcher.core.idle import (
    Activity,
    Course,
    Doubt,
    IdleNotice,
    IdleRule,
    Sight,
    Stage,
    Standing,
    activity_of,
    ended_at,
    look,
    notice_of,
    rule_of,
    standing_notice,
    step,
)
from dispatcher.core.ids import ClusterName, QueueName, WorkloadUid
from dispatcher.core.instants import stamp
from dispatcher.core.policy import QueuePolicy
from dispatcher.core.snapshot import MULTIKUEUE_CONTROLLER, Check, HubView, WorkerView
from dispatcher.core.workload import CheckState, HubWorkload, Owner, OwnerMeta, WorkloadClass
from tests.core_builders import NOW, policy
from tests.examples import examples

RULE = IdleRule(timeout_s=3600, notice_s=600)
BEGAN = NOW - timedelta(hours=8)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def seen(idle_since_s: float, checked_s: float = 0) -> Activity:
    """Not used since so many seconds ago, as seen so many seconds ago."""
    return Activity(ago(idle_since_s), ago(checked_s))


def noticed(given_s: float) -> IdleNotice:
    return IdleNotice(ago(given_s), ago(given_s - RULE.notice_s))


CASES = [
    pytest.param(RULE, seen(10), None, True, Stage.USED, Course.NONE, id="what is used is left alone"),
    pytest.param(RULE, seen(3599), None, True, Stage.USED, Course.NONE, id="a second before the timeout"),
    pytest.param(RULE, seen(3600), None, True, Stage.IDLE, Course.NOTICE, id="at the timeout notice is due"),
    pytest.param(
        RULE, seen(9000, 6000), None, True, Stage.USED, Course.NONE, id="idleness that nobody has seen does not count"
    ),
    pytest.param(
        RULE, seen(99999, 90000), None, True, Stage.IDLE, Course.NOTICE, id="once seen idle, it is given notice"
    ),
    *(
        pytest.param(RULE, doubt, None, True, Stage.UNKNOWN, Course.NONE, id=f"unknown use ({doubt}) is left alone")
        for doubt in Doubt
    ),
    pytest.param(None, seen(99999), None, True, Stage.UNKNOWN, Course.NONE, id="without a rule nothing happens"),
    pytest.param(RULE, seen(4000), noticed(300), True, Stage.NOTICED, Course.NONE, id="a notice is waited for"),
    pytest.param(RULE, seen(100), noticed(300), True, Stage.USED, Course.CANCEL, id="use during the notice ends it"),
    pytest.param(
        RULE, seen(700), noticed(600), True, Stage.USED, Course.CANCEL, id="use before it that is told later ends it"
    ),
    pytest.param(
        RULE, seen(4300, 400), noticed(600), True, Stage.NOTICED, Course.NONE, id="nobody looked at its end: it stands"
    ),
    pytest.param(RULE, seen(4200), noticed(600), True, Stage.DUE, Course.END, id="seen unused at its end it is freed"),
    pytest.param(
        RULE, seen(4200), noticed(600), False, Stage.UNSEEN, Course.NONE, id="a cluster that is not seen is left alone"
    ),
    *(
        pytest.param(RULE, doubt, noticed(9000), True, Stage.NOTICED, Course.NONE, id=f"doubt ({doubt}) ends nothing")
        for doubt in Doubt
    ),
    pytest.param(None, seen(9000), noticed(700), True, Stage.USED, Course.CANCEL, id="a rule that is gone ends it"),
    pytest.param(
        replace(RULE, timeout_s=9999), seen(4200), noticed(600), True, Stage.USED, Course.CANCEL,
        id="a longer timeout takes it back",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "activity", "notice", "visible", "stage", "course"), CASES)
def test_the_table(
    rule: IdleRule | None,
    activity: Activity | Doubt,
    notice: IdleNotice | None,
    visible: bool,
    stage: Stage,
    course: Course,
) -> None:
    assert step(rule, activity, notice, NOW, visible) == (stage, course)


# --- what it stands on -------------------------------------------------------------------------------------------


def owner(last: str | None = None, checked: str | None = None, **more: str) -> OwnerMeta:
    keys = {"last-activity": last, "activity-checked": checked, **more}
    written = ((f"entrepot.dev/{k.replace('_', '-')}", v) for k, v in keys.items() if v is not None)
    return OwnerMeta("job-uid", "Job", "notebooks", "nb", tuple(sorted(written)))


def at(seconds: float) -> str:
    return stamp(ago(seconds))


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        pytest.param(None, Doubt.NOT_TOLD, id="a job that is not seen"),
        pytest.param(owner(), Doubt.NOT_TOLD, id="a job that nobody watches"),
        pytest.param(owner(None, at(1)), Doubt.NOT_TOLD, id="somebody looked and does not say what they saw"),
        pytest.param(owner("today", at(1)), Doubt.UNREADABLE, id="no instant"),
        pytest.param(owner("2027-02-01T09:00:00", at(1)), Doubt.UNREADABLE, id="an instant without its offset"),
        pytest.param(owner(at(60), "soon"), Doubt.UNREADABLE, id="a look at no instant"),
        pytest.param(owner(at(99999), at(50000)), Doubt.EARLIER_RUN, id="nobody has looked since this run began"),
        pytest.param(owner(at(60), at(-61)), Doubt.IN_THE_FUTURE, id="a look in the future"),
        pytest.param(owner(at(-3600)), Doubt.IN_THE_FUTURE, id="use in the future"),
        pytest.param(owner(at(60), at(-59)), seen(60, -59), id="a clock that is a little ahead"),
        pytest.param(owner(at(7200), at(5)), seen(7200, 5), id="used two hours ago"),
        pytest.param(owner(at(99999), at(5)), Activity(BEGAN, ago(5)), id="not used in this run: idle since it began"),
        pytest.param(owner(at(7200)), seen(7200, 7200), id="use is a look; nobody has looked since"),
        pytest.param(owner(at(5), at(900)), seen(5, 5), id="used after the last look"),
    ],
)
def test_what_a_job_says_of_its_use(meta: OwnerMeta | None, expected: Activity | Doubt) -> None:
    assert activity_of(meta, BEGAN, NOW) == expected


def workload(**over: object) -> HubWorkload:
    base = HubWorkload(
        uid=WorkloadUid("w"),
        namespace="notebooks",
        name="job-nb-1",
        resource_version="7",
        created_at=BEGAN,
        local_queue="interactive",
        owner=Owner("batch/v1", "Job", "nb", "job-uid"),
        cluster_queue=QueueName("notebooks"),
        quota_reserved_at=BEGAN,
        admitted_at=BEGAN,
        checks=(CheckState("fleet", "Ready"),),
        cluster_name=ClusterName("onprem"),
    )
    return replace(base, **over)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("2027-02-01T09:00:00Z/2027-02-01T09:10:00Z", True),
        ("2027-02-01T09:00:00Z", False),
        ("2027-02-01T09:00:00Z/later", False),
        ("2027-02-01T09:10:00Z/2027-02-01T09:00:00Z", False),
        ("2027-01-01T09:00:00Z/2027-01-01T09:10:00Z", False),
        ("", False),
    ],
    ids=["an interval", "one instant", "no instant", "backwards", "of an earlier run", "none"],
)
def test_only_a_notice_of_this_run_that_reads_is_one(text: str, valid: bool) -> None:
    assert (standing_notice(workload(idle_notice=text), BEGAN) is not None) is valid


def test_a_notice_reads_back_as_it_was_written() -> None:
    given = notice_of(RULE, seen(3600, 0), BEGAN, NOW + timedelta(microseconds=5))
    assert standing_notice(workload(idle_notice=given.text), BEGAN) == given


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        ({"active": False, "evicted_at": ago(99)}, ago(100)),
        ({"active": False}, ago(100)),
        ({"active": True}, None),
        ({"active": False, "evicted_at": ago(-3600)}, None),
        ({"active": False, "finished": True}, None),
        ({"active": False, "idle_ended": "?"}, None),
    ],
    ids=["freed", "Kueue has not evicted yet", "started again", "stopped by hand later", "finished", "does not read"],
)
def test_when_it_was_freed(over: dict[str, object], expected: datetime | None) -> None:
    assert ended_at(workload(**{"idle_ended": at(100), **over})) == expected


def plans(of_class: int | None, of_queue: int | None) -> object:
    rules = policy()
    brief = WorkloadClass.INTERACTIVE
    classes = {**rules.classes, brief: replace(rules.classes[brief], idle_timeout_s=of_class, idle_notice_s=60)}
    queues = {QueueName("notebooks"): QueuePolicy(QueueName("notebooks"), brief, idle_timeout_s=of_queue)}
    return replace(rules, classes=classes, queues=queues)


@pytest.mark.parametrize(
    ("of_class", "of_queue", "says", "expected"),
    [
        (None, None, {}, None),
        (7200, None, {}, IdleRule(7200, 60)),
        (7200, 1800, {}, IdleRule(1800, 60)),
        (None, 1800, {}, IdleRule(1800, 60)),
        (7200, None, {"workload_class": "training"}, None),
        (7200, 1800, {"workload_class": "training"}, IdleRule(1800, 900)),
        (7200, None, {"workload_class": "nonsense"}, IdleRule(7200, 60)),
        (7200, None, {"datasets": "what is not known"}, IdleRule(7200, 60)),
    ],
    ids=[
        "none anywhere",
        "the class's",
        "the queue's goes first",
        "the queue's alone",
        "another class has none",
        "the queue's holds for every class",
        "a class that does not exist is the queue's",
        "another key that is wrong changes nothing",
    ],
)
def test_whose_timeout_counts(
    of_class: int | None, of_queue: int | None, says: dict[str, str], expected: IdleRule | None
) -> None:
    assert rule_of(workload(), owner(**says), plans(of_class, of_queue)) == expected  # type: ignore[arg-type]


# --- one look ----------------------------------------------------------------------------------------------------


def looked(*workloads: HubWorkload, meta: OwnerMeta | None = None, timeout_s: int | None = 3600) -> dict[str, Standing]:
    hub = HubView(
        synced=True,
        observed_at=NOW,
        workloads={w.uid: w for w in workloads},
        owners={"job-uid": meta} if meta is not None else {},
        checks={"fleet": Check("fleet", MULTIKUEUE_CONTROLLER, True, "fleet")},
    )
    workers = {ClusterName("onprem"): WorkerView(ClusterName("onprem"), True, NOW)}
    return dict(look(Sight(hub, workers, plans(timeout_s, None), NOW)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("over", "stage"),
    [
        ({}, Stage.IDLE),
        ({"cluster_name": None, "checks": (CheckState("fleet", "Pending"),)}, None),
        ({"admitted_at": None}, None),
        ({"evicted_at": NOW}, None),
        ({"finished": True}, None),
        ({"deleting": True}, None),
        ({"active": False}, None),
        ({"active": False, "idle_ended": at(5)}, Stage.ENDED),
        ({"idle_ending": at(5)}, Stage.ENDING),
        ({"idle_ending": at(5), "finished": True}, None),
    ],
    ids=[
        "runs",
        "waits",
        "is being placed",
        "is being evicted",
        "finished",
        "goes",
        "stopped by hand",
        "was freed",
        "is being freed",
        "finished before that",
    ],
)
def test_only_what_runs_is_looked_at(over: dict[str, object], stage: Stage | None) -> None:
    found = looked(workload(**over), meta=owner(at(4000), at(1)))
    assert (found["w"].stage if "w" in found else None) == stage


PENDING, RETRY = (CheckState("fleet", "Pending"),), (CheckState("fleet", "Retry"),)


@pytest.mark.parametrize(
    ("over", "course"),
    [
        ({}, Course.EVICT),
        ({"idle_ending": "?"}, Course.EVICT),
        ({"checks": RETRY}, Course.NONE),
        ({"evicted_at": NOW}, Course.NONE),
        ({"evicted_at": NOW, "cluster_name": None, "checks": PENDING}, Course.NONE),
        ({"evicted_at": NOW, "cluster_name": None, "checks": PENDING, "quota_reserved_at": None}, Course.CLOSE),
        ({"cluster_name": None, "checks": PENDING}, Course.CLOSE),
        ({"active": False}, Course.NONE),
        ({"active": False, "cluster_name": None, "quota_reserved_at": None, "checks": PENDING}, Course.CLOSE),
    ],
    ids=[
        "it runs",
        "a mark that does not read is one",
        "it was asked for already",
        "an eviction is on its way",
        "its pods still stop",
        "the hub has let go of it",
        "the hub has taken it up again",
        "somebody set it inactive while it runs",
        "somebody set it inactive first",
    ],
)
def test_the_way_to_the_end(over: dict[str, object], course: Course) -> None:
    found = looked(workload(**{"idle_ending": at(5), **over}), meta=owner(at(4000), at(1)))
    assert (found["w"].stage, found["w"].course) == (Stage.ENDING, course)


def test_a_notice_outlives_its_rule_only_to_be_taken_back() -> None:
    given = IdleNotice(ago(60), ago(-60))
    found = looked(workload(idle_notice=given.text), meta=owner(at(4000), at(1)), timeout_s=None)
    assert (found["w"].stage, found["w"].course) == (Stage.USED, Course.CANCEL)
    assert looked(workload(), meta=owner(at(4000), at(1)), timeout_s=None) == {}


@pytest.mark.parametrize(
    ("standing", "words"),
    [
        (Standing(workload(), None, Stage.ENDED, ended_at=ago(7200)), "freed as idle 2 h ago. Start it again: kubectl"),
        (Standing(workload(), None, Stage.UNKNOWN, rule=RULE, doubt=Doubt.NOT_TOLD), "its use is not known (nobody"),
        (Standing(workload(), None, Stage.USED, rule=RULE, activity=seen(300, 30)), "in use: last used 5 min ago"),
        (Standing(workload(), None, Stage.IDLE, rule=RULE, activity=seen(3600)), "notice is due"),
        (
            Standing(workload(), None, Stage.NOTICED, rule=RULE, activity=seen(3900), notice=noticed(300)),
            "its slice is freed at 2027-02-01 10:05:00 UTC (in 5 min) unless it is used before",
        ),
        (
            Standing(workload(), None, Stage.NOTICED, rule=RULE, activity=seen(4300, 400), notice=noticed(700)),
            "it is freed when somebody has looked once more and found it unused",
        ),
        (
            Standing(workload(), None, Stage.NOTICED, rule=RULE, doubt=Doubt.UNREADABLE, notice=noticed(700)),
            "so it is not freed before somebody looks",
        ),
        (
            Standing(workload(), ClusterName("x"), Stage.UNSEEN, rule=RULE, activity=seen(4300), notice=noticed(700)),
            "x cannot be seen, so it is left alone until it can",
        ),
        (Standing(workload(), None, Stage.DUE, rule=RULE, activity=seen(4300), notice=noticed(700)), "being freed"),
    ],
    ids=[
        "freed", "not known", "in use", "due for notice", "noticed", "noticed, not looked at since",
        "noticed, not known since", "noticed, not seen", "due",
    ],
)  # fmt: skip
def test_each_stage_has_its_words(standing: Standing, words: str) -> None:
    assert words in idle_text(standing, NOW)


def test_the_words_of_what_is_told_do_not_move_with_the_clock() -> None:
    found = Standing(workload(), None, Stage.NOTICED, rule=RULE, activity=seen(3900), notice=noticed(300))
    told = notice_text(found, noticed(300))
    assert told == "not used for 1 h: its slice is freed at 2027-02-01 10:05:00 UTC unless it is used before"
    assert freed_text(found, NOW).startswith("freed as idle at 2027-02-01 10:00:00 UTC, after notice. Start it again")
    assert cancelled_text(found, NOW) == "its notice is taken back: it was used 1 h 5 min ago"
    assert "nothing in its queue is freed" in cancelled_text(replace(found, rule=None), NOW)


# --- laws --------------------------------------------------------------------------------------------------------

seconds = st.integers(0, 20_000)
activities = st.one_of(
    st.sampled_from(list(Doubt)),
    st.builds(lambda idle, checked: Activity(ago(max(idle, checked)), ago(checked)), seconds, seconds),
)
notices = st.one_of(
    st.none(), st.builds(lambda given, length: IdleNotice(ago(given), ago(given - length)), seconds, seconds)
)
rules = st.one_of(st.none(), st.builds(IdleRule, st.integers(1, 20_000), st.integers(1, 20_000)))
laws = examples(300)


@laws
@given(rules, activities, notices, st.booleans())
def test_nothing_is_freed_but_after_a_notice_at_whose_end_somebody_saw_it_unused(
    rule: IdleRule | None, activity: Activity | Doubt, notice: IdleNotice | None, visible: bool
) -> None:
    stage, course = step(rule, activity, notice, NOW, visible)
    if course is not Course.END:
        return
    assert rule is not None and notice is not None and isinstance(activity, Activity)  # noqa: PT018
    assert visible
    assert stage is Stage.DUE
    assert activity.checked >= notice.ends
    assert notice.ends <= NOW
    assert (notice.given - activity.idle_since).total_seconds() >= rule.timeout_s


@laws
@given(rules, st.sampled_from(list(Doubt)), notices, st.booleans())
def test_what_is_not_known_does_nothing_but_take_back_what_no_rule_asks_for(
    rule: IdleRule | None, doubt: Doubt, notice: IdleNotice | None, visible: bool
) -> None:
    _, course = step(rule, doubt, notice, NOW, visible)
    assert course is (Course.CANCEL if rule is None and notice is not None else Course.NONE)


@laws
@given(st.builds(IdleRule, st.integers(1, 20_000), st.integers(1, 20_000)), activities)
def test_a_notice_just_given_stands_and_lasts_its_whole_time(rule: IdleRule, activity: Activity | Doubt) -> None:
    """No flapping: what gives a notice does not take it back, whatever clock the look was by."""
    if isinstance(activity, Doubt) or step(rule, activity, None, NOW, True)[1] is not Course.NOTICE:
        return
    notice = notice_of(rule, activity, BEGAN, NOW)
    assert (notice.ends - notice.given).total_seconds() == rule.notice_s
    assert notice.given >= NOW
    assert step(rule, activity, notice, NOW, True) == (Stage.NOTICED, Course.NONE)


@laws
@given(st.builds(IdleRule, st.integers(1, 20_000), st.integers(1, 20_000)), activities, notices, st.booleans())
def test_any_use_after_the_notice_takes_it_back(
    rule: IdleRule, activity: Activity | Doubt, notice: IdleNotice | None, visible: bool
) -> None:
    if isinstance(activity, Doubt) or notice is None or activity.idle_since <= notice.given:
        return
    assert step(rule, activity, notice, NOW, visible) == (Stage.USED, Course.CANCEL)
