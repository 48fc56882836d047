"""What the demo shows: clusters, jobs and the latest decisions, all of it read from the daemon's HTTP API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx
from rich.console import Group
from rich.table import Table
from rich.text import Text

DECIDED = 8
STYLES = {"finished": "green", "running": "cyan", "held": "red", "waiting": "yellow", "nominated": "magenta"}
Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Picture:
    """One look at the API."""

    workloads: list[Answer]
    clusters: list[Answer]
    decisions: list[Answer]


async def look(client: httpx.AsyncClient) -> Picture:
    """Ask for everything that is shown. Raises httpx.HTTPError while the daemon is not there."""
    answers = []
    for path in ("/v1/workloads?limit=200", "/v1/clusters", "/v1/decisions?limit=200"):
        answer = await client.get(path)
        answer.raise_for_status()
        answers.append(answer.json()["items"])
    return Picture(*answers)


def job_name(workload: Answer) -> str:
    """namespace/name of the job behind a workload."""
    job = workload.get("job") or {}
    return f"{workload['namespace']}/{job.get('name') or workload['name']}"


def render(picture: Picture) -> Group:
    return Group(_clusters(picture.clusters), _jobs(picture.workloads), _decisions(picture.decisions))


def _clusters(clusters: list[Answer]) -> Table:
    table = Table(title="Clusters", expand=True, title_justify="left")
    for column in ("cluster", "where", "link", "GPUs free", "running", "held GPUs"):
        table.add_column(column, justify="right" if column in ("GPUs free", "running", "held GPUs") else "left")
    for cluster in clusters:
        nodes = cluster["nodes"] or {}
        free = f"{nodes['gpus_free']} of {nodes['gpus']}" if nodes else "unknown"
        place = f"{cluster['provider']} {cluster['region']}"
        table.add_row(
            cluster["name"], place, cluster["link"], free, str(cluster["running"] or 0), str(cluster["held_gpus"])
        )
    return table


def _jobs(workloads: list[Answer]) -> Table:
    table = Table(title="Queue", expand=True, title_justify="left")
    for column, ratio in (("job", 3), ("class", 2), ("state", 2), ("where", 2), ("why", 8)):
        table.add_column(column, ratio=ratio, no_wrap=True, overflow="ellipsis")
    for workload in sorted(workloads, key=lambda w: (w["state"]["code"] == "finished", -w["priority"], job_name(w))):
        code = workload["state"]["code"]
        table.add_row(
            job_name(workload),
            workload["workload_class"] or "?",
            Text(code, style=STYLES.get(code, "")),
            workload["state"]["cluster"] or "",
            workload["reason"],
        )
    return table


def _decisions(decisions: list[Answer]) -> Table:
    table = Table(title="Latest decisions", expand=True, title_justify="left")
    for column, ratio in (("job", 3), ("chosen", 2), ("expected", 1), ("in a sentence", 9)):
        table.add_column(column, ratio=ratio, no_wrap=True, overflow="ellipsis")
    for decision in decisions[:DECIDED]:
        total = decision["total"]["text"] if decision["total"] else ""
        table.add_row(
            f"{decision['namespace']}/{decision['job']['name']}", decision["chosen"] or "-", total, decision["text"]
        )
    return table
