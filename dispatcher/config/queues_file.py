"""queues.yaml: the queue plan. Who gets how much of which flavor where, in which order, and what waiting costs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from dispatcher.config.values import (
    Boolean,
    Choice,
    DnsLabel,
    DnsName,
    Duration,
    Integer,
    Percent,
    Positive,
    Size,
    Strict,
    Text,
    TimeOfDay,
    TimeZone,
    Usd,
    Word,
    fail,
)
from dispatcher.core.order import DEFAULT_RULES
from dispatcher.core.policy import DEFAULT_IDLE_NOTICE_S, Away
from dispatcher.core.workload import WorkloadClass

MOST_RESERVATIONS = 32


class Period(StrEnum):
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    QUARTER = "quarter"


class Weekday(StrEnum):
    MONDAY = "mon"
    TUESDAY = "tue"
    WEDNESDAY = "wed"
    THURSDAY = "thu"
    FRIDAY = "fri"
    SATURDAY = "sat"
    SUNDAY = "sun"


class WithinQueue(StrEnum):
    NEVER = "never"
    LOWER_PRIORITY = "lower-priority"
    LOWER_OR_NEWER_EQUAL_PRIORITY = "lower-or-newer-equal-priority"


class Reclaim(StrEnum):
    NEVER = "never"
    LOWER_PRIORITY = "lower-priority"
    ANY = "any"


class WhileBorrowing(StrEnum):
    NEVER = "never"
    LOWER_PRIORITY = "lower-priority"


class PriorityClass(Strict):
    """A WorkloadPriorityClass: it orders admission and preemption, on the hub and on every worker."""

    value: Annotated[Integer, Field(description="Higher goes first.")]
    description: Annotated[Text, Field(description="When to use it.")]

    @model_validator(mode="after")
    def _fits_the_api(self) -> PriorityClass:
        if self.value > 1_000_000_000:
            raise fail("more than 1000000000, the highest priority of a user", "write a smaller number")
        return self


class OnUnreachable(Strict):
    """What becomes of running work whose cluster cannot be reached: it may be lost, or only the link to it."""

    do: Annotated[Choice[Away], Field(description="stay; ask: its owner is told; move: its attempt is ended.")]
    after: Annotated[Duration | None, Field(description="move: how long the cluster must have been away.")] = None

    @model_validator(mode="after")
    def _a_time_for_a_move(self) -> OnUnreachable:
        if (self.do is Away.MOVE) != (self.after is not None):
            raise fail("'after' belongs to move, and move needs it", "write {do: move, after: PT30M}, or {do: stay}")
        return self


class ClassDefaults(Strict):
    """What a workload of this class is taken to want where its owner says nothing."""

    delay_price: Annotated[Usd, Field(description="USD that one hour of waiting costs, a workload.")]
    patience: Annotated[Duration, Field(description="How long a nominated worker may take to admit.")]
    default_duration: Annotated[Duration, Field(description="Run time assumed when nothing better is known.")]
    preemptible: Annotated[Boolean, Field(description="Whether it may be stopped for more urgent work.")]
    checkpoint_required: Annotated[Boolean, Field(description="Whether it must name a checkpoint place.")]
    may_burst: Annotated[Boolean, Field(description="Whether nodes may be bought for it.")]
    look_ahead: Annotated[
        Integer, Field(description="Workloads that may be nominated to a cluster ahead of its capacity; 0 = none.")
    ] = 0
    checkpoint_interval: Annotated[Duration | None, Field(description="Where the owner says none.")] = None
    checkpoint_size: Annotated[Size | None, Field(description="Of one checkpoint, where the owner says none.")] = None
    checkpoint_write: Annotated[
        Duration | None, Field(description="How long one stops the run; absent = its bytes' way to their store.")
    ] = None
    output_size: Annotated[Size | None, Field(description="Of all outputs, where the owner says none.")] = None
    restart: Annotated[Duration, Field(description="From an interruption until the work goes on.")] = 600
    on_unreachable: Annotated[
        OnUnreachable, Field(description="What becomes of what runs on a cluster that cannot be reached.")
    ] = OnUnreachable(do=Away.STAY)
    idle_timeout: Annotated[
        Duration | None, Field(description="Unused for so long, it is freed after notice; absent = never.")
    ] = None
    idle_notice: Annotated[Duration, Field(description="From the notice to the end.")] = DEFAULT_IDLE_NOTICE_S
    users: Annotated[
        tuple[Word, ...], Field(description="Regions of those who wait for its answers, where the owner says none.")
    ] = ()
    max_round_trip_ms: Annotated[
        Positive | None, Field(description="A cluster farther from any of them takes none of it; absent = any may.")
    ] = None
    round_trip_price: Annotated[
        Usd | None, Field(description="USD that a millisecond of round trip costs an hour; absent = nothing.")
    ] = None


class Share(Strict):
    """A queue's part of one flavor, in GPUs (or MIG slices) or in whole nodes; CPU and memory follow in proportion."""

    gpus: Annotated[Integer | None, Field(description="Nominal GPUs or MIG slices.")] = None
    nodes: Annotated[Integer | None, Field(description="Nominal nodes: for flavors without GPUs.")] = None
    borrow: Annotated[Integer | None, Field(description="At most this much from siblings; absent = no limit.")] = None
    lend: Annotated[Integer | None, Field(description="At most this much to siblings; absent = all of it.")] = None

    @model_validator(mode="after")
    def _one_unit(self) -> Share:
        if (self.gpus is None) == (self.nodes is None):
            raise fail("exactly one of 'gpus' and 'nodes' is needed", "write gpus: 8, or nodes: 1 for CPU nodes")
        if self.lend is not None and self.lend > self.nominal:
            raise fail(f"lends {self.lend} of {self.nominal}", "lend at most the nominal share")
        return self

    @property
    def nominal(self) -> int:
        return self.gpus if self.gpus is not None else (self.nodes or 0)


class Preemption(Strict):
    """Whom this queue may stop on a worker."""

    within_queue: Annotated[Choice[WithinQueue], Field(description="Work of its own.")] = WithinQueue.LOWER_PRIORITY
    reclaim: Annotated[Choice[Reclaim], Field(description="Work of siblings that use its share.")] = Reclaim.ANY
    while_borrowing: Annotated[Choice[WhileBorrowing], Field(description="Work of siblings, to borrow.")] = (
        WhileBorrowing.NEVER
    )

    @model_validator(mode="after")
    def _as_kueue_wants_it(self) -> Preemption:
        if self.reclaim is Reclaim.NEVER and self.while_borrowing is not WhileBorrowing.NEVER:
            raise fail("while_borrowing without reclaim, which Kueue refuses", "set reclaim, or while_borrowing: never")
        return self


class Ladder(Strict):
    """At which percent of the budget which action begins; ends in checkpoints and moves, never in lost work."""

    warn: Annotated[Percent, Field(description="Tell the owners.")] = 80
    stop_bursting: Annotated[Percent, Field(description="Buy no nodes.")] = 90
    no_paid_clusters: Annotated[Percent, Field(description="Start nothing on clusters that send a bill.")] = 95
    move_home: Annotated[Percent, Field(description="Checkpoint and move to owned clusters.")] = 100
    hold: Annotated[Percent, Field(description="Hold new starts.")] = 105

    @model_validator(mode="after")
    def _upwards(self) -> Ladder:
        steps = (self.warn, self.stop_bursting, self.no_paid_clusters, self.move_home, self.hold)
        if list(steps) != sorted(steps):
            raise fail("the steps of a ladder must go upwards", "warn <= stop_bursting <= ... <= hold")
        return self


class Budget(Strict):
    """What a queue may spend in a period. The period begins at midnight of the time zone."""

    period: Annotated[Choice[Period], Field(description="day, week, month or quarter.")]
    amount: Annotated[Usd, Field(description="USD in one period.")]
    timezone: Annotated[TimeZone, Field(description="Where the period begins and ends.")]
    ladder: Annotated[Ladder, Field(description="What happens on the way to it.")] = Ladder()


class Window(Strict):
    """A recurring time in which the queue's reserved capacity is really free for it."""

    days: Annotated[tuple[Choice[Weekday], ...], Field(description="Days on which it opens.", min_length=1)]
    start: Annotated[TimeOfDay, Field(description="When it opens.")]
    duration: Annotated[Duration, Field(description="How long it stays open.")]
    timezone: Annotated[TimeZone, Field(description="Whose clock that is.")]
    lead_time: Annotated[Duration, Field(description="How long before it lending stops and moves begin.")]


class Access(Strict):
    """Who may use the queue."""

    teams: Annotated[tuple[Word, ...], Field(description="Values of the label entrepot.dev/team.", min_length=1)]


class Queue(Strict):
    """A ClusterQueue of the same name on the hub and on every worker, with its one namespace and LocalQueue."""

    namespace: Annotated[DnsLabel, Field(description="Namespace of its jobs, on hub and workers.")]
    local_queue: Annotated[DnsLabel, Field(description="LocalQueue there: the queue name that jobs carry.")]
    description: Annotated[Text | None, Field(description="For people.")] = None
    default_class: Annotated[Choice[WorkloadClass], Field(description="Class of workloads that name none.")]
    priority: Annotated[DnsName, Field(description="One of `priorities`: the usual one of this queue.")]
    default_labels: Annotated[
        tuple[Word, ...], Field(description="Data labels assumed where a job names no data; absent = unlabelled.")
    ] = ()
    preemption: Annotated[Preemption, Field(description="Whom it may stop on a worker.")] = Preemption()
    shares: Annotated[
        dict[DnsLabel, dict[DnsName, Share]], Field(description="By cluster and flavor; absent = may not run there.")
    ]
    budget: Annotated[Budget | None, Field(description="What it may spend.")] = None
    windows: Annotated[dict[DnsName, Window], Field(description="Reserved times.")] = {}
    access: Annotated[Access | None, Field(description="Who may use it; absent = whoever may use its namespace.")] = (
        None
    )
    on_unreachable: Annotated[
        OnUnreachable | None, Field(description="For its work, whatever the class says; absent = as the class says.")
    ] = None
    idle_timeout: Annotated[
        Duration | None,
        Field(description="Unused for so long, work of any class is freed after notice; absent = as its class."),
    ] = None


class Order(Strict):
    """Who goes first among those of one priority, and what is kept free for those that cannot start."""

    ageing: Annotated[
        Duration, Field(description="Head start of the dearest waiting per GPU-hour of work; nobody new passes older.")
    ] = DEFAULT_RULES.ageing_s
    share_half_life: Annotated[Duration, Field(description="After so long, what a team had counts half.")] = (
        DEFAULT_RULES.share_half_life_s
    )
    share_weight: Annotated[
        Duration, Field(description="So much later is the turn of a team that had the whole fleet.")
    ] = DEFAULT_RULES.share_weight_s
    reservations: Annotated[
        Integer, Field(description="So many that cannot start keep their earliest start free; 0 = none.")
    ] = DEFAULT_RULES.reservations
    hold_out: Annotated[
        Duration, Field(description="At most so long one waits for a cheaper cluster while another is free; 0 = never.")
    ] = DEFAULT_RULES.hold_out_s

    @model_validator(mode="after")
    def _few(self) -> Order:
        if self.reservations > MOST_RESERVATIONS:
            raise fail(
                f"more than {MOST_RESERVATIONS} reservations, which keep nearly everything back",
                f"write {MOST_RESERVATIONS} at most",
            )
        return self


class QueuesFile(Strict):
    """The queue plan: priorities, class defaults and one entry a ClusterQueue."""

    priorities: Annotated[dict[DnsName, PriorityClass], Field(description="WorkloadPriorityClasses by name.")]
    classes: Annotated[
        dict[Choice[WorkloadClass], ClassDefaults], Field(description="Defaults of all seven workload classes.")
    ]
    queues: Annotated[dict[DnsName, Queue], Field(description="ClusterQueues by name.")]
    order: Annotated[Order, Field(description="Who of those that wait goes first.")] = Order()

    @model_validator(mode="after")
    def _whole(self) -> QueuesFile:
        missing = [str(c) for c in WorkloadClass if c not in self.classes]
        if missing:
            raise fail(f"no defaults for {', '.join(missing)}", "give every workload class its defaults")
        if not self.queues:
            raise fail("a plan without queues", "describe at least one queue")
        return self
