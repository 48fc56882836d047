"""Every metric of the daemon in one table. Labels are bounded: enums and cluster names, never workload names."""

from __future__ import annotations

from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from dispatcher.logs import OTHER, PROBLEMS

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_CYCLE_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)


@dataclass(frozen=True, slots=True)
class Metrics:
    """One registry per daemon, so that two in one process (tests, the simulator) do not mix."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    decisions: Counter = field(init=False)
    rejections: Counter = field(init=False)
    nominations: Counter = field(init=False)
    waiting: Gauge = field(init=False)
    holds: Gauge = field(init=False)
    held_gpus: Gauge = field(init=False)
    ghosts: Gauge = field(init=False)
    cluster_link: Gauge = field(init=False)
    cluster_age: Gauge = field(init=False)
    hub_age: Gauge = field(init=False)
    reserve_to_nomination: Histogram = field(init=False)
    cycle: Histogram = field(init=False)
    loop_failures: Counter = field(init=False)
    events_lost: Counter = field(init=False)
    watch_turns: Counter = field(init=False)
    blueprint_reloads: Counter = field(init=False)
    blueprint_stale: Gauge = field(init=False)
    catalog_age: Gauge = field(init=False)
    catalog_trouble: Gauge = field(init=False)
    replicas: Gauge = field(init=False)
    input_problems: Gauge = field(init=False)
    law_age: Gauge = field(init=False)
    law_max_age: Gauge = field(init=False)
    law_signed: Gauge = field(init=False)
    law_trouble: Gauge = field(init=False)
    law_evictions: Counter = field(init=False)
    clock_ahead: Gauge = field(init=False)
    shadow_differences: Counter = field(init=False)
    shadow_open: Gauge = field(init=False)
    shadow_refused: Gauge = field(init=False)
    shadow_failures: Counter = field(init=False)
    findings: Counter = field(init=False)
    findings_open: Gauge = field(init=False)
    endings: Counter = field(init=False)
    footing: Gauge = field(init=False)
    clusters_lost: Gauge = field(init=False)
    idle: Gauge = field(init=False)
    idle_writes: Counter = field(init=False)
    leading: Gauge = field(init=False)
    leader_changes: Counter = field(init=False)
    lease_failures: Counter = field(init=False)
    store_failures: Counter = field(init=False)
    tasks: Gauge = field(init=False)
    problems: Counter = field(init=False)
    replay_bytes: Gauge = field(init=False)
    replay_bytes_limit: Gauge = field(init=False)
    replay_oldest: Gauge = field(init=False)

    def __post_init__(self) -> None:
        r = self.registry
        table = {
            "decisions": Counter("entrepot_decisions", "Decisions recorded", ["outcome"], registry=r),
            "rejections": Counter("entrepot_rejections", "Rejections in recorded decisions", ["reason"], registry=r),
            "nominations": Counter("entrepot_nominations", "Nomination writes", ["result"], registry=r),
            "waiting": Gauge("entrepot_workloads", "Hub workloads by phase", ["phase"], registry=r),
            "holds": Gauge("entrepot_holds", "Open holds", registry=r),
            "held_gpus": Gauge("entrepot_held_gpus", "GPUs under hold", ["cluster"], registry=r),
            "ghosts": Gauge("entrepot_ghosts", "Room charged for what is not there", ["cluster", "kind"], registry=r),
            "cluster_link": Gauge(
                "entrepot_cluster_link", "1 for the state a worker is in", ["cluster", "link"], registry=r
            ),
            "cluster_age": Gauge(
                "entrepot_cluster_age_seconds",
                "Age of what we see of a worker; since the start while never seen",
                ["cluster"],
                registry=r,
            ),
            "hub_age": Gauge(
                "entrepot_hub_age_seconds",
                "Age of what we see of the hub; since the start while never seen",
                registry=r,
            ),
            "reserve_to_nomination": Histogram(
                "entrepot_reserve_to_nomination_seconds",
                "From quota reservation on the hub to our nomination",
                registry=r,
                buckets=_SECONDS,
            ),
            "cycle": Histogram("entrepot_cycle_seconds", "One dispatch cycle", registry=r, buckets=_CYCLE_SECONDS),
            "loop_failures": Counter("entrepot_loop_failures", "A loop failed and was restarted", ["loop"], registry=r),
            "watch_turns": Counter(
                "entrepot_watch_turns", "What happened to watches", ["cluster", "kind", "what"], registry=r
            ),
            "events_lost": Counter("entrepot_events_lost", "Events that could not be written", ["cause"], registry=r),
            "blueprint_reloads": Counter("entrepot_blueprint_reloads", "Blueprint reloads", ["result"], registry=r),
            "blueprint_stale": Gauge("entrepot_blueprint_refused", "1 while the files on disk are refused", registry=r),
            "leading": Gauge("entrepot_leading", "1 while this replica may write", registry=r),
            "leader_changes": Counter("entrepot_leader_changes", "Began or ceased to lead", registry=r),
            "lease_failures": Counter("entrepot_lease_failures", "The Lease could not be read or written", registry=r),
            "store_failures": Counter("entrepot_store_failures", "Cycles that ended at the store", registry=r),
            "findings": Counter("entrepot_findings", "Things found wrong with a workload", ["code"], registry=r),
            "findings_open": Gauge("entrepot_findings_open", "Such things that are so now", ["code"], registry=r),
            "problems": Counter("entrepot_problems", "Warnings and errors in the log", ["kind"], registry=r),
            "replay_bytes": Gauge("entrepot_replay_bytes", "Stored inputs of decisions, for replay", registry=r),
            "replay_bytes_limit": Gauge("entrepot_replay_limit_bytes", "Beyond this the oldest go", registry=r),
            "replay_oldest": Gauge("entrepot_replay_oldest_seconds", "Age of the oldest stored inputs", registry=r),
            "idle": Gauge("entrepot_idle", "Workloads under an idle timeout, by how they stand", ["stage"], registry=r),
            "idle_writes": Counter(
                "entrepot_idle_writes", "Notices, notices taken back, and ends", ["course", "result"], registry=r
            ),
            "input_problems": Gauge("entrepot_input_problems", "Workloads held by what they say", registry=r),
            "tasks": Gauge("entrepot_tasks", "asyncio tasks that live; growth without end is a leak", registry=r),
        }
        table |= _law_metrics(r) | _catalog_metrics(r) | _loss_metrics(r)
        for name, metric in table.items():
            object.__setattr__(self, name, metric)
        for kind in (*PROBLEMS, OTHER):
            self.problems.labels(kind)  # there from the start, at zero: a first problem is an increase

    def text(self) -> bytes:
        """The Prometheus exposition of this registry."""
        return generate_latest(self.registry)


def _loss_metrics(r: CollectorRegistry) -> dict[str, Counter | Gauge]:
    return {
        "endings": Counter("entrepot_endings", "Attempts ended through the hub", ["code", "result"], registry=r),
        "footing": Gauge("entrepot_footing", "1 for what may be concluded from silence now", ["mode"], registry=r),
        "clusters_lost": Gauge("entrepot_clusters_lost", "Clusters that count as lost", registry=r),
    }


def _catalog_metrics(r: CollectorRegistry) -> dict[str, Counter | Gauge]:
    trouble = ["trouble"]
    presence = ["store", "presence"]
    return {
        "replicas": Gauge("entrepot_replicas", "Declared replicas of data sets, as looked for", presence, registry=r),
        "catalog_age": Gauge("entrepot_catalog_age_seconds", "Since when its endpoint confirmed nothing", registry=r),
        "catalog_trouble": Gauge("entrepot_catalog_trouble", "1 while its endpoint is in this", trouble, registry=r),
    }


def _law_metrics(r: CollectorRegistry) -> dict[str, Counter | Gauge]:
    trouble, result = ["trouble"], ["result"]
    return {
        "law_age": Gauge("entrepot_law_age_seconds", "Since when nobody vouched for the rules in force", registry=r),
        "law_max_age": Gauge("entrepot_law_max_age_seconds", "Classified dispatch stops then; 0 = never", registry=r),
        "law_signed": Gauge("entrepot_law_signed", "1 while the rules in force are signed", registry=r),
        "law_trouble": Gauge("entrepot_law_trouble", "1 while this keeps classified work waiting", trouble, registry=r),
        "law_evictions": Counter("entrepot_law_evictions", "Attempts ended since they are illegal", result, registry=r),
        "clock_ahead": Gauge("entrepot_clock_ahead_seconds", "How far the wall clock is ahead of our time", registry=r),
        "shadow_differences": Counter(
            "entrepot_shadow_differences", "What rules that do not rule would have done", ["would", "rule"], registry=r
        ),
        "shadow_open": Gauge("entrepot_shadow_open", "Workloads that the candidate differs on", ["would"], registry=r),
        "shadow_refused": Gauge("entrepot_shadow_refused", "1 while the candidate is not valid", registry=r),
        "shadow_failures": Counter("entrepot_shadow_failures", "Looks at the candidate that failed", registry=r),
    }
