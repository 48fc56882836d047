"""Golden decisions: what was decided on small worlds, kept as record files, and how they are made anew.

    python -m tests.replay.golden             what would change
    python -m tests.replay.golden --write     decide all scenes anew: a deliberate change of what the core decides

A scene whose inputs are still the same is only decided anew; look at the difference before you write it.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dispatcher.core.decide import decide
from dispatcher.core.ids import ClusterName
from dispatcher.core.policy import PriceUnit
from dispatcher.core.replay import Inputs, Record, compare, replay
from dispatcher.core.snapshot import Snapshot
from dispatcher.store.documents import decode_record, encode_record, replayed_digest
from tests.core_builders import (
    GB,
    NOW,
    USD,
    blind,
    compute,
    copy,
    data,
    egress,
    hold,
    node,
    nodes,
    pods,
    policy,
    queue,
    quota,
    request,
    rule,
    site,
    snapshot,
    uses,
    worker,
)
from tests.loops.bench import Bench, example, start
from tests.loops.jobs import gang, rollouts_and_learner

FOLDER = Path(__file__).parent / "golden"
SITES = (site("onprem", "DE"), site("cloud", "FI"))
PRICES = (
    compute("onprem", 2 * USD),
    compute("cloud", 3 * USD),
    compute("cloud", USD // 50, "cpu", PriceUnit.VCPU_HOUR),
)


def the_cheaper_cluster_wins() -> Inputs:
    return Inputs(request("train"), snapshot(worker("onprem"), worker("cloud")), policy(SITES, PRICES), NOW)


def data_makes_the_cheaper_cluster_dearer() -> Inputs:
    rules = policy(
        SITES,
        (compute("onprem", 3 * USD), compute("cloud", 2 * USD)),
        (egress("r-onprem", "r-cloud", 20_000, 1000),),
        (data("radar", 4000 * GB, ("internal",), ("onprem",)),),
    )
    return Inputs(request("train", data=uses(("radar", 2))), snapshot(worker("onprem"), worker("cloud")), rules, NOW)


def a_label_forbids_a_country_and_all_other_reasons_are_told() -> Inputs:
    rules = policy(
        SITES,
        PRICES,
        (egress("r-onprem", "r-cloud", 0),),
        (data("secret", GB, ("german",), ("onprem",)),),
        (rule("german", "DE"),),
    )
    full = worker("onprem", nodes(2, used=8), copies=[copy("old", 8, 2)])
    return Inputs(request("train", data=uses("secret")), snapshot(full, worker("cloud", nodes(1, gpu=4))), rules, NOW)


def what_is_not_known_is_never_chosen() -> Inputs:
    rules = policy((*SITES, site("x", "US")), (compute("onprem", 9 * USD),))
    return Inputs(request("train"), snapshot(worker("onprem"), worker("cloud"), blind("x")), rules, NOW)


def a_promise_takes_the_room_and_a_preemption_makes_it() -> Inputs:
    low = copy("low", 8, 2, priority=0)
    queues = [queue(quotas=quota(16, used=16), preempts_lower_priority=True)]
    preempting = worker("cloud", nodes(2, used=8), queues, copies=[low])
    seen = snapshot(worker("onprem", nodes(1)), preempting, holds=[hold("other", "onprem")])
    return Inputs(request("urgent", priority=100), seen, policy(SITES, PRICES), NOW)


def one_more_cluster_after_the_first_did_not_admit() -> Inputs:
    wanted = request("train", pods(2), already_nominated=(ClusterName("onprem"),), attempt=2)
    views = (worker("onprem", [node("n0", used=8), node("n1")]), worker("cloud"))
    return Inputs(wanted, snapshot(*views), policy(SITES, PRICES), NOW)


SCENES: tuple[Callable[[], Inputs], ...] = (
    the_cheaper_cluster_wins,
    data_makes_the_cheaper_cluster_dearer,
    a_label_forbids_a_country_and_all_other_reasons_are_told,
    what_is_not_known_is_never_chosen,
    a_promise_takes_the_room_and_a_preemption_makes_it,
    one_more_cluster_after_the_first_did_not_admit,
)


async def _recorded(folder: Path) -> dict[str, Record]:
    """Decisions of a daemon on the example blueprint: two gangs of one second, and a JobSet."""
    rules, _ = example()
    bench = await start(folder, policy=replace(rules, loaded_from="config"))
    for job in (gang("first", pods=2), gang("second", pods=2), rollouts_and_learner("rollouts")):
        bench.fleet.submit(job)
    await bench.step()
    await bench.step()
    found = {
        "example-the-second-gang-of-a-second": await _record(bench, "second"),
        "example-a-jobset-of-two-flavors": await _record(bench, "rollouts"),
    }
    await bench.store.close()
    return found


async def _record(bench: Bench, job: str) -> Record:
    (found,) = await bench.store.decisions_of(bench.workload(job).key, 1)
    record = await bench.store.record(found.id)
    assert record is not None
    return record


def _made(inputs: Inputs) -> Record:
    """The table of products is cut to what the scenes name, so that the files stay short."""
    products = {name: product for name, product in inputs.policy.products.items() if name == "h100-80gb"}
    inputs = replace(inputs, policy=replace(inputs.policy, products=products))
    decision = decide(inputs.request, inputs.snapshot, inputs.policy, inputs.now)
    return Record(decision, replayed_digest(decision), inputs)


def scenes() -> dict[str, Record]:
    """All scenes, decided by the code as it is."""
    found = {scene.__name__.replace("_", "-"): _made(scene()) for scene in SCENES}
    with tempfile.TemporaryDirectory() as folder:
        found |= asyncio.run(_recorded(Path(folder)))
    return {name: _sorted_by_name(record) for name, record in sorted(found.items())}


def _sorted_by_name(record: Record) -> Record:
    """Goldens must not depend on the order in which a world was built."""
    clusters = tuple(sorted(record.inputs.snapshot.clusters, key=lambda c: c.name))
    return replace(record, inputs=replace(record.inputs, snapshot=Snapshot(clusters, record.inputs.snapshot.holds)))


def read(file: Path) -> Record:
    return decode_record(file.read_bytes())


def difference(record: Record) -> str:
    """What a replay of a record does differently, one place a line; empty when it gives the same bytes."""
    again = replay(record.inputs)
    found = compare(record, again, replayed_digest(again))
    if found.recorded_digest == found.replayed_digest:
        return ""
    lines = [f"{d.path}: {d.change}: recorded {d.recorded!r}, now {d.replayed!r}" for d in found.differences]
    return "\n".join(lines or ["the values are equal, the bytes are not: the encoding has changed"])


def main(write: bool) -> None:
    known = {file.stem for file in FOLDER.glob("*.json")}
    for name, record in scenes().items():
        file, content = FOLDER / f"{name}.json", encode_record(record, indent=1)
        if file.exists() and file.read_bytes() == content:
            continue
        told = difference(read(file)) or "its inputs have changed" if file.exists() else "new"
        sys.stdout.write(f"{name}: {told}\n")
        if write:
            file.write_bytes(content)
        known.discard(name)
    for name in sorted(known - set(scenes())):
        sys.stdout.write(f"{name}: no scene makes it any more\n")
        if write:
            (FOLDER / f"{name}.json").unlink()


if __name__ == "__main__":
    main(write="--write" in sys.argv[1:])
