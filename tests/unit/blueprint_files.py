"""A small blueprint to break in tests: two clusters, two queues, two data sets. Its lines are counted in the tests."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from dispatcher.config import LoadResult, load_blueprint

EXAMPLE = Path(__file__).parents[2] / "config"
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)

FLEET = """\
providers:
  onprem: {}
  northgrid: {}
regions:
  de-home: {country: DE}
  fi-north: {country: FI}
clusters:
  home:
    provider: onprem
    region: de-home
    site:
      country: DE
      attested: {by: security, until: 2027-06-30}
    credentials: {secret: kueue-system/home-kubeconfig}
    flavors:
      cpu:
        labels: {entrepot.dev/pool: cpu}
        purchase: internal
        nodes: {count: 2, capacity: {cpu: 64, memory: 256Gi}}
      h100:
        product: h100-80gb
        labels: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
        purchase: internal
        nodes: {count: 2, capacity: {cpu: 192, memory: 2Ti, nvidia.com/gpu: 8}}
  cloud:
    provider: northgrid
    region: fi-north
    site:
      country: FI
      attested: {by: security, until: 2027-06-30}
    credentials: {file: cloud.kubeconfig}
    flavors:
      h100:
        product: NVIDIA-H100-80GB-HBM3
        labels: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
        purchase: on-demand
        nodes: {count: 4, capacity: {cpu: 192, memory: 2Ti, nvidia.com/gpu: 8}}
    node_pools:
      h100-burst: {flavor: h100, max_nodes: 2}
"""

_CLASS = (
    "{delay_price: 4, patience: PT5M, default_duration: PT2H, "
    "preemptible: true, checkpoint_required: false, may_burst: true}"
)
QUEUES = f"""\
priorities:
  production: {{value: 5000, description: Retraining.}}
classes:
  training: {_CLASS}
  reinforcement-learning: {_CLASS}
  simulation: {_CLASS}
  data-processing: {_CLASS}
  evaluation: {_CLASS}
  inference: {_CLASS}
  interactive: {_CLASS}
queues:
  training:
    namespace: autonomy
    local_queue: training
    default_class: training
    priority: production
    default_labels: [public]
    shares:
      home:
        cpu: {{nodes: 1}}
        h100: {{gpus: 12, borrow: 4}}
      cloud:
        h100: {{gpus: 32}}
  curation:
    namespace: flywheel
    local_queue: curation
    default_class: data-processing
    priority: production
    shares:
      home:
        h100: {{gpus: 4, lend: 2}}
    budget: {{period: month, amount: 1000, timezone: Europe/Berlin}}
"""

DATA = """\
# What a label may do is written in residency/.
#
labels:
  public: {}
  personal: {}
  unlabelled: {}
stores:
  lake: {provider: onprem, region: de-home, site: {attested: {by: security, until: 2027-06-30}}}
data_sets:
  roads:
    labels: [public]
    size: 12TB
    replicas: {stores: [lake], clusters: [cloud]}
  crops:
    labels: [personal]
    size: 38Ti
    replicas: {stores: [lake]}
    derived_from: [roads]
"""

PRICES = """\
max_age_days: 400
compute:
  - {provider: onprem, region: de-home, product: cpu, purchase: internal, usd_per_hour: 0.012, source: rate, dated: 2026-11-02}
  - {provider: onprem, region: de-home, product: h100-80gb, purchase: internal, usd_per_hour: 1.90, source: rate, dated: 2026-11-02}
  - provider: northgrid
    region: fi-north
    product: h100-80gb
    purchase: on-demand
    unit: gpu-hour
    usd_per_hour: "2.95"
    source: rate card
    dated: 2026-11-02
egress:
  - {from_region: de-home, to_region: "*", usd_per_gb: 0.004, bandwidth_mbit_s: 1000, source: rate, dated: 2026-11-02}
  - {from_region: fi-north, to_region: de-home, usd_per_gb: 0.02, source: rate, dated: 2026-11-02}
"""  # noqa: E501

RULES = """\
rules:
  public:
    labels: [public]
    flows: [process, replicate, cache, checkpoint, output, logs, remote_access]
    effect: permit
  personal:
    labels: [personal]
    flows: [process, replicate, cache]
    effect: permit
    when: {destination.country: {in: "@eu"}}
  unlabelled:
    labels: [unlabelled]
    flows: [process, replicate, cache]
    effect: permit
    when: {destination.country: {in: [DE]}}
  not-of-places:
    labels: [personal, unlabelled]
    flows: [checkpoint, output, logs, remote_access]
    effect: permit
sets:
  eu: {members: [DE, FI, FR], source: for tests}
"""

R = "residency/rules.yaml"
SMALL: dict[str, str] = {
    "fleet.yaml": FLEET,
    "queues.yaml": QUEUES,
    "data.yaml": DATA,
    "prices.yaml": PRICES,
    R: RULES,
}


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    """Put files into a folder, made when it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def edited(file: str, old: str, new: str) -> dict[str, str | bytes]:
    """The small blueprint with one place of one file changed; the place must be there exactly once."""
    assert SMALL[file].count(old) == 1, f"{old!r} is {SMALL[file].count(old)} times in {file}"
    return {**SMALL, file: SMALL[file].replace(old, new)}


def load(folder: Path, files: dict[str, str | bytes] | None = None) -> LoadResult:
    """Load files from a folder, as the daemon does."""
    return load_blueprint(write(folder, dict(SMALL) if files is None else files), NOW)


def texts(result: LoadResult) -> list[str]:
    return [problem.text() for problem in result.errors]
