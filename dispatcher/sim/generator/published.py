"""What is published of real GPU work, as the tables that the generator draws from. Each says where it is from.

These are aggregates; the repository carries no trace. They are of public traces under CC-BY-4.0: "Philly traces" by
Microsoft (msr-fiddle/philly-traces), by way of the projects named below.
"""

from __future__ import annotations

from dispatcher.sim.generator.quantiles import Quantiles

PHILLY_RUN_TIMES = Quantiles.of(
    ("0", 0), ("0.01", 17), ("0.025", 31), ("0.05", 48), ("0.1", 61), ("0.15", 68), ("0.2", 76), ("0.25", 131),
    ("0.3", 229), ("0.35", 428), ("0.4", 630), ("0.45", 889), ("0.5", 1_186), ("0.55", 1_500), ("0.6", 1_871),
    ("0.65", 2_242), ("0.7", 2_590), ("0.75", 3_340), ("0.8", 4_699), ("0.85", 6_300), ("0.875", 9_148),
    ("0.9", 12_858), ("0.925", 21_048), ("0.95", 49_936), ("0.96", 69_279), ("0.97", 101_849), ("0.98", 167_762),
    ("0.985", 201_007), ("0.99", 287_239), ("0.993", 382_394), ("0.995", 484_395), ("0.997", 688_516),
    ("0.998", 873_535), ("0.999", 1_356_073), ("1", 4_628_239),
)  # fmt: skip
"""Run times in seconds of 83,154 Philly jobs, 2017: points of the empirical quantile function in alibaba/clusterdata,
cluster-trace-gpu-v2020/analysis/philly_runtime.csv (CC-BY-4.0)."""

PHILLY_GPUS: tuple[tuple[int, int], ...] = (
    (1, 6_866), (2, 303), (4, 1_339), (8, 1_255), (16, 167), (24, 9), (32, 60), (64, 1),
)  # fmt: skip
"""GPUs a job, in jobs of ten thousand: counted in the 15,264 jobs that Gavel (stanford-futuredata/gavel, seed 0, MIT)
took from Philly. Sizes that are no multiple of the next smaller one (12, 20) stand under 24."""

PHILLY_HOURS: tuple[int, ...] = (
    44, 81, 36, 47, 22, 25, 35, 53, 67, 37, 18, 39, 41, 27, 26, 25, 24, 33, 35, 56, 56, 60, 60, 42,
)  # fmt: skip
"""Submissions by hour of the day, in permille; the hours count from the first submission. Same jobs as above."""

SOURCES: tuple[str, ...] = ("fitted to Philly traces (Microsoft), CC-BY-4.0, as counted by Gavel (MIT) and Alibaba",)
"""What a report of a generated scenario credits."""

CHECKPOINT_BYTES_PER_MODEL_GPU = 14 * 10**9
"""Bytes of a checkpoint for each eight GPUs begun: weights and optimizer of a model that just fills them. Our own
assumption, no trace tells it."""
DATA_SET_MEDIAN_GB = 148
DATA_SET_SIGMA_PERMILLE = 1_500
"""Sizes of data sets: lognormal with mu 5 and sigma 1.5 (in GB, median 148). Our own assumption, no trace tells it."""
ESTIMATE_SIGMA_PERMILLE = 700
"""Errors of duration estimates: a lognormal factor of sigma 0.7, about half to double. Our own assumption."""
