"""A scene in which queues contend for one node a cluster, on the embedded and on the real fleet.

It is the example blueprint with a flavor of its own (`contest`, one node of eight GPUs on each of three clusters) and
four queues for it:

- `lenders` own all of it, reclaim from any priority, and stop lower priorities of their own;
- `borrowers` own nothing and borrow;
- `hub-lenders` and `hub-borrowers` are the same on workers, without a right to reclaim there, and share a cohort on the
  *hub*, where the first own eight GPUs and take them back.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dispatcher.config.render import Rendered
from tests.builders import GPU, Manifest, job, pod_template

CONFIG = Path(__file__).resolve().parents[1] / "config"
CLUSTERS = {"onprem-eu": "internal", "cloud-a-fi": "reserved", "cloud-c-us": "on-demand"}
FLAVOR, LABEL = "contest", {"entrepot.dev/pool": "contest"}
GPUS = 8
RESTART = "PT30M"
"""Long enough that the seconds which a run of a test lasts change no choice."""
PREFIX = "contest-"
_NEVER = "{within_queue: never, reclaim: never}"
_OWNER = "{within_queue: lower-priority, reclaim: any}"
QUEUES: Mapping[str, tuple[int, str, str]] = {
    "lenders": (GPUS, "training", _OWNER),
    "borrowers": (0, "simulation", _NEVER),
    "hub-lenders": (0, "training", _NEVER),
    "hub-borrowers": (0, "simulation", _NEVER),
}
"""By name: GPUs of its own on each cluster, its class, whom it may stop on a worker."""
HUB_COHORT = "contest-hub"
HUB_SHARES = {"hub-lenders": GPUS, "hub-borrowers": 0}


def blueprint(folder: Path) -> Path:
    """The example blueprint with the scene added, in a folder of its own."""
    shutil.copytree(CONFIG, folder)
    fleet, queues = folder / "fleet.yaml", folder / "queues.yaml"
    told = fleet.read_text()
    for cluster, purchase in CLUSTERS.items():
        at = told.index("    flavors:\n", told.index(f"\n  {cluster}:\n")) + len("    flavors:\n")
        told = f"{told[:at]}{_FLAVOR.format(purchase=purchase)}{told[at:]}"
    fleet.write_text(told)
    plan = queues.read_text().replace("look_ahead: 1", "look_ahead: 0")
    plan = plan.replace("    patience:", f"    restart: {RESTART}\n    patience:")
    queues.write_text(plan + "".join(_queue(PREFIX + name, *shape) for name, shape in QUEUES.items()))
    tenants = folder / "residency" / "tenants.yaml"
    names = ", ".join(PREFIX + name for name in QUEUES)
    tenants.write_text(tenants.read_text().replace("interactive]", f"interactive, {names}]"))
    return folder


_FLAVOR = f"""\
      {FLAVOR}:
        product: h100-80gb
        labels: {{{{entrepot.dev/pool: contest}}}}
        purchase: {{purchase}}
        watts: 1020
        nodes: {{{{count: 1, capacity: {{{{cpu: 192, memory: 2Ti, nvidia.com/gpu: {GPUS}}}}}}}}}
"""


def _queue(name: str, own: int, kind: str, preemption: str) -> str:
    shares = "".join(f"      {cluster}: {{{FLAVOR}: {{gpus: {own}}}}}\n" for cluster in CLUSTERS)
    return (
        f"  {name}:\n    namespace: {name}\n    local_queue: main\n    default_class: {kind}\n"
        f"    priority: research\n    default_labels: [public]\n    preemption: {preemption}\n"
        f"    description: Of a test.\n    budget: {{period: month, amount: 1000, timezone: Europe/Berlin}}\n"
        f"    shares:\n{shares}"
    )


def on_the_hub(objects: Iterable[Manifest]) -> list[Manifest]:
    """The rendered objects of the hub, with a cohort of two queues there whose owner takes back what it lends."""
    found: list[Manifest] = []
    for item in objects:
        name = item["metadata"]["name"].removeprefix(PREFIX)
        if item["kind"] == "ClusterQueue" and name in HUB_SHARES:
            item = {**item, "spec": {**item["spec"], "cohortName": HUB_COHORT}}
            item["spec"]["preemption"] = {"withinClusterQueue": "Never", "reclaimWithinCohort": "Any"}
            (group,) = item["spec"]["resourceGroups"]
            (flavor,) = group["flavors"]
            share = str(HUB_SHARES[name])
            lines = [{**line, "nominalQuota": share} if line["name"] == GPU else line for line in flavor["resources"]]
            item["spec"]["resourceGroups"] = [{**group, "flavors": [{**flavor, "resources": lines}]}]
        found.append(item)
    return found


def of_the_scene(objects: Iterable[Manifest]) -> list[Manifest]:
    """What the scene adds to a fleet of the example blueprint."""
    names = {FLAVOR, *(PREFIX + queue for queue in QUEUES)}
    return [
        item
        for item in objects
        if item["metadata"]["name"] in names or str(item["metadata"].get("namespace", "")).startswith(PREFIX)
    ]


def with_hub_cohort(plan: Rendered) -> Rendered:
    return Rendered(hub=tuple(on_the_hub(plan.hub)), workers=plan.workers, nodes=plan.nodes)


def work(name: str, queue: str, *clusters: str, gpus: int = GPUS, duration: str = "600s", **more: Any) -> Manifest:
    """A job of the scene: one pod, on the flavor of the contest, on one of these clusters."""
    says = {"clusters": ",".join(clusters or CLUSTERS), **more.pop("says", {})}
    return job(
        name,
        queue="main",
        in_namespace=PREFIX + queue,
        template=pod_template({GPU: gpus, "cpu": 8, "memory": "16Gi"}, duration, nodeSelector=LABEL),
        annotations={f"entrepot.dev/{key}": value for key, value in says.items()},
        **more,
    )
