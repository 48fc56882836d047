"""The soaked daemon: its lives, and what is sampled of each: memory, tasks, open files, errors and their metric."""

from __future__ import annotations

import json
import re
import statistics
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import httpx

from tests.fleet import LocalFleet
from tests.local.daemon import Running, is_ready, spawn, wait_for

EVERY_S = 5.0
WARM_UP_S = 300.0
"""Memory is judged after this: caches fill, code is loaded at first use."""
READY_S = 120.0
_PROBLEMS = re.compile(r'^entrepot_problems_total\{kind="(\w+)"\} (\S+)$', re.MULTILINE)
_TASKS = re.compile(r"^entrepot_tasks (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Sample:
    at_s: float
    """Since the start of this life."""
    rss_mib: float
    files: int
    tasks: int | None
    """None where the daemon did not answer just then."""


@dataclass(slots=True)
class Life:
    started_s: float
    log_from: int
    """Where its lines begin in the log, in bytes."""
    samples: list[Sample] = field(default_factory=list)
    problems: dict[str, float] = field(default_factory=dict)
    """As the newest scrape showed them."""
    scraped_at: float = 0.0
    """Wall clock of that scrape."""

    @property
    def lasted_s(self) -> float:
        return self.samples[-1].at_s if self.samples else 0.0

    def settled(self) -> list[Sample]:
        return [sample for sample in self.samples if sample.at_s > WARM_UP_S]


@dataclass(slots=True)
class Soaked:
    """Starts and kills the daemon, and samples it from a thread of its own."""

    fleet: LocalFleet
    folder: Path
    blueprint: Path
    kubeconfig: Path
    lives: list[Life] = field(default_factory=list)
    running: Running | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None

    def begin(self) -> None:
        self.launch()
        self._thread = threading.Thread(target=self._run, name="samples", daemon=True)
        self._thread.start()

    def launch(self) -> float:
        """Start the daemon; seconds until it was ready."""
        log = self.folder / "daemon.log"
        life = Life(time.monotonic(), log.stat().st_size if log.exists() else 0)
        running = spawn(self.fleet, self.folder, self.blueprint, self.kubeconfig)
        with self._lock:
            self.running = running
            self.lives.append(life)
        return wait_for(lambda: is_ready(running), READY_S, lambda: running.log()[-3000:])

    def kill(self) -> None:
        with self._lock:
            running, self.running = self.running, None
        if running is not None:
            running.kill()

    def stop(self) -> None:
        with self._lock:
            running, self.running = self.running, None
        if running is not None:
            running.stop()

    def end(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=20)
        self.stop()

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            with self._lock, suppress(OSError):
                if self.running is not None and self.running.process.poll() is None:
                    self._sample(self.running, self.lives[-1])

    def _sample(self, running: Running, life: Life) -> None:
        pid = running.process.pid
        asked_at, tasks = time.time(), None
        with suppress(httpx.HTTPError):
            text = httpx.get(f"{running.server}/metrics", timeout=5.0, trust_env=False).text
            found = _TASKS.search(text)
            tasks = int(float(found[1])) if found is not None else None
            life.problems = {kind: float(count) for kind, count in _PROBLEMS.findall(text)}
            life.scraped_at = asked_at
        files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        life.samples.append(Sample(time.monotonic() - life.started_s, _rss_mib(pid), files, tasks))

    # --- what is judged ---

    def longest(self) -> Life:
        return max(self.lives, key=lambda life: life.lasted_s)

    def unmeasured(self) -> list[str]:
        """Warnings and errors of the log that no metric shows, and lines that are no log lines at all."""
        found: list[str] = []
        content = (self.folder / "daemon.log").read_bytes()
        ends = [life.log_from for life in self.lives[1:]] + [len(content)]
        for life, end in zip(self.lives, ends, strict=True):
            found += _unmeasured(life, content[life.log_from : end].decode(errors="replace"))
        return found


def _unmeasured(life: Life, log: str) -> list[str]:
    logged: Counter[str] = Counter()
    strange: list[str] = []
    whole, _, _ = log.rpartition("\n")  # a kill may come in the middle of a line
    for line in whole.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            strange.append(f"no log line: {line[:200]}")
            continue
        if entry["level"] in ("warning", "error", "critical") and _at(entry["timestamp"]) < life.scraped_at:
            logged[entry["event"]] += 1
    missing = [f"{kind} logged {n} times, counted {life.problems.get(kind, 0):g}" for kind, n in logged.items()
               if life.problems.get(kind, 0) < n]  # fmt: skip
    return [*missing, *strange]


def _at(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()


def slope_mib_per_hour(samples: Sequence[Sample]) -> float | None:
    """Theil and Sen's: the median of the slopes between all pairs, which a few outliers do not move."""
    thinned = samples[:: max(1, len(samples) // 200)]
    slopes = [
        (b.rss_mib - a.rss_mib) / (b.at_s - a.at_s)
        for number, a in enumerate(thinned)
        for b in thinned[number + 1 :]
        if b.at_s > a.at_s
    ]
    return statistics.median(slopes) * 3600 if slopes else None


def grown(samples: Sequence[float]) -> float | None:
    """By how much the last quarter's median exceeds the first quarter's."""
    quarter = len(samples) // 4
    if quarter == 0:
        return None
    return statistics.median(samples[-quarter:]) - statistics.median(samples[:quarter])


def _rss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
