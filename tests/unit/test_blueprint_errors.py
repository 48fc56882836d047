"""Every kind of mistake in a blueprint: where it is, what it breaks and what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.blueprint_files import SMALL, R, edited, load, texts

F, Q, D, P = "fleet.yaml", "queues.yaml", "data.yaml", "prices.yaml"
HOME_NODES = "nodes: {count: 2, capacity: {cpu: 64, memory: 256Gi}}"
CLOUD_NODES = "nodes: {count: 4, capacity: {cpu: 192, memory: 2Ti, nvidia.com/gpu: 8}}"
NO_SECRET = "exactly one of 'secret' and 'file' is needed; write secret: entrepot-system/NAME-entrepot"


@pytest.mark.parametrize("most", [1, 20])
def test_fr_scl_01_as_many_nominations_as_the_api_takes_may_be_allowed(tmp_path: Path, most: int) -> None:
    result = load(tmp_path, edited(F, "providers:\n", f"limits: {{max_nominations: {most}}}\nproviders:\n"))
    assert (texts(result), result.policy and result.policy.limits.max_nominations) == ([], most)


def test_the_small_blueprint_has_nothing_wrong_with_it(tmp_path: Path) -> None:
    result = load(tmp_path)
    assert (texts(result), result.warnings) == ([], ())


CASES = [
    # limits
    pytest.param(
        (F, "providers:\n", "limits: {max_nominations: 21}\nproviders:\n"),
        "fleet.yaml:1:1: error: 'limits': max_nominations is more than the API's 20; write 20 or less",
        id="a longer list of nominations than the API takes",
    ),
    # references
    pytest.param(
        (F, "    provider: northgrid\n", "    provider: nothgrid\n"),
        "fleet.yaml:26:15: error: 'nothgrid': not one of the providers of fleet.yaml; did you mean 'northgrid'?",
        id="a cluster of an unknown provider",
    ),
    pytest.param(
        (F, "    region: fi-north\n", "    region: fi-nort\n"),
        "fleet.yaml:27:13: error: 'fi-nort': not one of the regions of fleet.yaml; did you mean 'fi-north'?",
        id="a cluster in an unknown region",
    ),
    pytest.param(
        (F, "flavor: h100, max", "flavor: h10, max"),
        "fleet.yaml:39:28: error: 'h10': not a flavor of cloud; did you mean 'h100'?",
        id="a node pool of an unknown flavor",
    ),
    pytest.param(
        (Q, "    priority: production\n    default_labels", "    priority: prodction\n    default_labels"),
        "queues.yaml:16:15: error: 'prodction': not one of the priorities of queues.yaml; did you mean 'production'?",
        id="a queue of an unknown priority",
    ),
    pytest.param(
        (Q, "default_labels: [public]", "default_labels: [pubic]"),
        "queues.yaml:17:22: error: 'pubic': not one of the labels of data.yaml; did you mean 'public'?",
        id="a queue with an unknown data label",
    ),
    pytest.param(
        (Q, "      cloud:\n", "      clout:\n"),
        "queues.yaml:22:7: error: 'clout': not one of the clusters of fleet.yaml; did you mean 'cloud'?",
        id="a share on an unknown cluster",
    ),
    pytest.param(
        (Q, "        h100: {gpus: 32}", "        h200: {gpus: 32}"),
        "queues.yaml:23:9: error: 'h200': not a flavor of cloud; did you mean 'h100'?",
        id="a share of an unknown flavor",
    ),
    pytest.param(
        (D, "clusters: [cloud]", "clusters: [clod]"),
        "data.yaml:13:43: error: 'clod': not one of the clusters of fleet.yaml; did you mean 'cloud'?",
        id="a replica on an unknown cluster",
    ),
    pytest.param(
        (D, "replicas: {stores: [lake], clusters", "replicas: {stores: [lak], clusters"),
        "data.yaml:13:25: error: 'lak': not one of the stores of data.yaml; did you mean 'lake'?",
        id="a replica in an unknown store",
    ),
    pytest.param(
        (D, "labels: [personal]", "labels: [personnel]"),
        "data.yaml:15:14: error: 'personnel': not one of the labels of data.yaml; did you mean 'personal'?",
        id="a data set with an unknown label",
    ),
    pytest.param(
        (D, "derived_from: [roads]", "derived_from: [raods]"),
        "data.yaml:18:20: error: 'raods': not one of the data sets of data.yaml; did you mean 'roads'?",
        id="a data set made from an unknown one",
    ),
    pytest.param(
        (D, "derived_from: [roads]", "derived_from: [crops]"),
        "data.yaml:18:5: error: 'derived_from': derived from itself; remove one link of the ring",
        id="a data set made from itself",
    ),
    pytest.param(
        (R, '"@eu"', '"@uu"'),
        "residency/rules.yaml:10:12: error: 'uu': not one of the sets of residency/; known: eu",
        id="a rule that names an unknown set of countries",
    ),
    pytest.param(
        (P, "  - provider: northgrid", "  - provider: CSVProvidr"),
        "prices.yaml:5:15: error: 'CSVProvidr': not one of the providers of fleet.yaml; known: northgrid, onprem",
        id="FR-BUD-06: a price of an unknown provider is never a default",
    ),
    pytest.param(
        (P, "    product: h100-80gb", "    product: h100-81gb"),
        "prices.yaml:7:14: error: 'h100-81gb': unknown GPU product; did you mean 'h100-80gb'?",
        id="a price of an unknown product",
    ),
    # products
    pytest.param(
        (F, "product: h100-80gb", "product: h100"),
        "fleet.yaml:21:18: error: 'h100': unknown GPU product; did you mean 'h100-80gb'?",
        id="FR-CFG-01: an ambiguous product gets a suggestion at lint time",
    ),
    pytest.param(
        (F, "product: h100-80gb", "product: NVIDIA-H100-80GB-HBM3-SHARED"),
        "fleet.yaml:21:18: error: 'NVIDIA-H100-80GB-HBM3-SHARED': a time-sliced card, which is not a whole one; "
        "use MIG slices, or whole cards",
        id="a time-sliced product",
    ),
    pytest.param(
        (F, "product: h100-80gb", "product: quantum-9000"),
        "fleet.yaml:21:18: error: 'quantum-9000': unknown GPU product; add it to fleet.yaml's products",
        id="a product unlike any other",
    ),
    pytest.param(
        (F, "product: h100-80gb", "product: a100-80gb"),
        "fleet.yaml:22:42: error: 'NVIDIA-H100-80GB-HBM3': the label of h100-80gb, where the flavor is a100-80gb; "
        "give the product its own label",
        id="FR-SCO-04: a flavor whose node label is of another product",
    ),
    pytest.param(
        (F, "product: h100-80gb", "product: h100-80gb-mig-1g.10gb"),
        "fleet.yaml:24:61: error: 'nvidia.com/gpu': not what h100-80gb-mig-1g.10gb is offered as; "
        "write nvidia.com/mig-1g.10gb",
        id="a flavor of MIG slices whose nodes offer whole cards",
    ),
    pytest.param(
        (F, "memory: 256Gi", "memory: 256Gi, nvidia.com/gpu: 8"),
        "fleet.yaml:19:62: error: 'nvidia.com/gpu': a flavor with GPUs and no product; "
        "add product:, or remove nvidia.com/gpu",
        id="a flavor with GPUs and no product",
    ),
    # values
    pytest.param(
        (F, "      country: DE\n", "      country: UK\n"),
        "fleet.yaml:12:16: error: 'UK': not an ISO 3166-1 country; did you mean 'GB'?",
        id="UK is no country code",
    ),
    pytest.param(
        (R, '"@eu"', "EU"),
        "residency/rules.yaml:10:38: error: 'EU': a group of countries, not a country; "
        "name a set of residency/, such as '@eu27'",
        id="EU is no country",
    ),
    pytest.param(
        (R, '"@eu"', "de"),
        "residency/rules.yaml:10:38: error: 'de': a country code in lower case; did you mean 'DE'?",
        id="a country code in lower case",
    ),
    pytest.param(
        (F, "      country: DE\n", "      country: FR\n"),
        "fleet.yaml:12:16: error: 'FR': region de-home lies in DE; one of the two is wrong",
        id="site facts that contradict the region",
    ),
    pytest.param(
        (F, "{count: 2, capacity: {cpu: 64", "{count: -2, capacity: {cpu: 64"),
        "fleet.yaml:19:24: error: '-2': negative, where zero or more is expected; write 0 or more",
        id="a negative number of nodes",
    ),
    pytest.param(
        (F, "{count: 2, capacity: {cpu: 64", "{count: 010, capacity: {cpu: 64"),
        "fleet.yaml:19:24: error: '010': not a whole number below 10^9; write digits only, such as 8",
        id="an octal number",
    ),
    pytest.param(
        (F, "{count: 2, capacity: {cpu: 64", "{count: 1_000, capacity: {cpu: 64"),
        "fleet.yaml:19:24: error: '1_000': not a whole number below 10^9; write digits only, such as 8",
        id="a number with underscores",
    ),
    pytest.param(
        (F, "{count: 2, capacity: {cpu: 64", "{count: '2', capacity: {cpu: 64"),
        "fleet.yaml:19:24: error: '2': text in quotes, where a number is expected; remove the quotes",
        id="a number in quotes",
    ),
    pytest.param(
        (F, "{count: 2, capacity: {cpu: 64", "{count: , capacity: {cpu: 64"),
        "fleet.yaml:19:23: error: 'count': a value is missing; write it after the colon",
        id="a key without a value",
    ),
    pytest.param(
        (F, "memory: 256Gi", "memory: 256GiB"),
        "fleet.yaml:19:55: error: '256GiB': not a quantity: unknown suffix 'GiB' (use m, k, M, G, Ki, Mi, Gi ...); "
        "write a quantity such as 64 or 512Gi",
        id="a quantity with a wrong suffix",
    ),
    pytest.param(
        (F, "cpu: 64, memory: 256Gi", "cpu: 64"),
        "fleet.yaml:19:9: error: 'nodes': nodes without memory; write capacity: {cpu: 64, memory: 512Gi}",
        id="nodes without memory",
    ),
    pytest.param(
        (F, "until: 2027-06-30}\n    credentials: {secret", "until: 2027-02-30}\n    credentials: {secret"),
        "fleet.yaml:13:39: error: '2027-02-30': not a date of the calendar; write year-month-day, such as 2026-11-30",
        id="a day that does not exist",
    ),
    pytest.param(
        (Q, "amount: 1000", "amount: -5"),
        "queues.yaml:32:37: error: '-5': negative money; write zero or more USD, such as 2.49",
        id="a negative budget",
    ),
    pytest.param(
        (Q, "amount: 1000", "amount: 1.1234567"),
        "queues.yaml:32:37: error: '1.1234567': more than 6 decimals: money is counted in millionths of a USD; "
        "round it to 6 decimals",
        id="money with seven decimals",
    ),
    pytest.param(
        (P, '    usd_per_hour: "2.95"', "    usd_per_hour: -2.95"),
        "prices.yaml:10:19: error: '-2.95': negative money; write zero or more USD, such as 2.49",
        id="a negative price",
    ),
    pytest.param(
        (P, '    usd_per_hour: "2.95"', "    usd_per_hour: .inf"),
        "prices.yaml:10:19: error: '.inf': not an amount of USD; write digits and a point, such as 2.49",
        id="an infinite price",
    ),
    pytest.param(
        (D, "size: 12TB", "size: 12 elephants"),
        "data.yaml:12:11: error: '12 elephants': not a size; write 40TB, 38Ti or bytes",
        id="a size in elephants",
    ),
    pytest.param(
        (D, "size: 12TB", "size: -12TB"),
        "data.yaml:12:11: error: '-12TB': a negative size; write 40TB, 38Ti or bytes",
        id="a negative size",
    ),
    pytest.param(
        (Q, "  evaluation: {delay_price: 4, patience: PT5M", "  evaluation: {delay_price: 4, patience: 5m"),
        "queues.yaml:8:42: error: '5m': not a duration; "
        "an ISO 8601 duration in whole numbers is expected, such as PT90M, PT8H or P2D",
        id="a duration that is not ISO 8601",
    ),
    pytest.param(
        (Q, "    default_labels: [public]\n", "    on_unreachable: {do: move}\n"),
        "queues.yaml:17:5: error: 'on_unreachable': 'after' belongs to move, and move needs it; "
        "write {do: move, after: PT30M}, or {do: stay}",
        id="a move without a time",
    ),
    pytest.param(
        (Q, "Europe/Berlin", "Europe/Berln"),
        "queues.yaml:32:53: error: 'Europe/Berln': not a time zone; did you mean 'Europe/Berlin'?",
        id="an unknown time zone",
    ),
    pytest.param(
        (R, "flows: [process, replicate, cache, checkpoint", "mode: shadow\n    description: ''\n    flows: [process"),
        "residency/rules.yaml:5:18: error: an empty text; write something that a reader can check",
        id="a description that says nothing",
    ),
    pytest.param(
        (F, "        purchase: on-demand\n", "        purchase: ondemand\n"),
        "fleet.yaml:36:19: error: 'ondemand': not one of the words allowed here; did you mean 'on-demand'?",
        id="a word that is nearly one of those allowed",
    ),
    pytest.param(
        (Q, "period: month", "period: fortnight"),
        "queues.yaml:32:22: error: 'fortnight': not one of the words allowed here; known: day, month, quarter, week",
        id="a word unlike those allowed",
    ),
    # shape
    pytest.param(
        (F, "      country: FI\n", "      contry: FI\n"),
        "fleet.yaml:29:7: error: 'contry': unknown key; did you mean 'country'?",
        id="a misspelt key",
    ),
    pytest.param(
        (Q, "    budget: {period", "budget: {period"),
        "queues.yaml:32:1: error: 'budget': unknown key; 'budget' is a key of queues.NAME: check the indentation",
        id="FR-CFG-05: a key that stands two levels too high",
    ),
    pytest.param(
        (Q, "    default_labels: [public]\n", "    value: 7\n    default_labels: [public]\n"),
        "queues.yaml:17:5: error: 'value': unknown key; 'value' is a key of priorities.NAME: check the indentation",
        id="FR-CFG-05: a key of another part of the file",
    ),
    pytest.param(
        (F, "        purchase: on-demand\n", ""),
        "fleet.yaml:33:7: error: 'h100': the key 'purchase' is missing; add 'purchase:'",
        id="a missing key",
    ),
    pytest.param(
        (F, "      attested: {by: security, until: 2027-06-30}\n    credentials: {file", "    credentials: {fil"),
        "fleet.yaml:30:19: error: 'fil': unknown key; did you mean 'file'?",
        id="a misspelt key within braces",
    ),
    pytest.param(
        (F, "credentials: {file: cloud.kubeconfig}", "credentials: {}"),
        f"fleet.yaml:31:5: error: 'credentials': {NO_SECRET}",
        id="a cluster without credentials",
    ),
    pytest.param(
        (F, "credentials: {file: cloud.kubeconfig}", "credentials: cloud.kubeconfig"),
        "fleet.yaml:31:18: error: 'cloud.kubeconfig': a mapping of keys is expected here; "
        "write 'key: value' lines below it",
        id="a word where a mapping is expected",
    ),
    pytest.param(
        (D, "labels: [personal]", "labels: personal"),
        "data.yaml:15:13: error: 'personal': a list is expected here; write [one, two], or '- ' lines below it",
        id="a word where a list is expected",
    ),
    pytest.param(
        (Q, "cpu: {nodes: 1}", "cpu: {gpus: 1}"),
        "queues.yaml:20:21: error: '1': a flavor without GPUs; write nodes: instead of gpus:",
        id="a share in GPUs of nodes without any",
    ),
    pytest.param(
        (Q, "cpu: {nodes: 1}", "cpu: {gpus: 1, nodes: 1}"),
        "queues.yaml:20:9: error: 'cpu': exactly one of 'gpus' and 'nodes' is needed; "
        "write gpus: 8, or nodes: 1 for CPU nodes",
        id="a share in two units",
    ),
    pytest.param(
        (Q, "gpus: 4, lend: 2", "gpus: 4, lend: 5"),
        "queues.yaml:31:9: error: 'h100': lends 5 of 4; lend at most the nominal share",
        id="a share that lends more than it is",
    ),
    pytest.param(
        (R, "    labels: [public]\n", '    labels: ["*"]\n'),
        "residency/rules.yaml:2:3: error: 'public': a permit for every label; "
        "name the labels; '*' is for forbid and require",
        id="FR-POL-01: no permit for whatever there is",
    ),
    # things that are there twice
    pytest.param(
        (Q, "    namespace: flywheel\n    local_queue: curation", "    namespace: autonomy\n    local_queue: training"),
        "queues.yaml:26:18: error: 'training': autonomy/training is the LocalQueue of 'training' already; "
        "give it another name",
        id="two queues behind one LocalQueue",
    ),
    pytest.param(
        (P, "from_region: fi-north, to_region: de-home", "from_region: de-home, to_region: '*'"),
        "prices.yaml:15:5: error: 'de-home *': priced twice, first on line 14; remove one of the rows",
        id="a route that is priced twice",
    ),
    pytest.param(
        (P, "region: de-home, product: cpu", "region: de-home, product: H100_NVLINK_80GB"),
        "prices.yaml:4:5: error: 'onprem de-home h100-80gb internal': priced twice, first on line 3; "
        "remove one of the rows",
        id="a card that is priced twice under two spellings",
    ),
    pytest.param(
        (P, "    unit: gpu-hour", "    unit: vcpu-hour"),
        "prices.yaml:9:11: error: 'vcpu-hour': h100-80gb is sold by the gpu-hour; correct it, or remove the key",
        id="a card priced by the vCPU",
    ),
    pytest.param(
        (D, "  crops:\n", "  roads:\n"),
        "data.yaml:14:3: error: 'roads': the key is there twice, first on line 10; remove or rename one of them",
        id="a data set of the same name twice",
    ),
]


@pytest.mark.parametrize(("edit", "expected"), CASES)
def test_a_mistake_is_named_with_its_place_and_its_fix(
    edit: tuple[str, str, str], expected: str, tmp_path: Path
) -> None:
    result = load(tmp_path, edited(*edit))
    assert texts(result) == [expected]
    assert result.policy is None
    assert result.blueprint is None


NESTED = {
    "one level below a cluster": (
        ("fleet.yaml", "      country: FI\n", "      country: FI\n      acton: deny\n"),
        "fleet.yaml:30:7: error: 'acton': unknown key",
    ),
    "within braces of a rule": (
        ("data.yaml", "public: {}", "public: {description: roads, acton: deny}"),
        "data.yaml:4:32: error: 'acton': unknown key",
    ),
    "a key of the level above": (
        ("queues.yaml", "budget: {period: month", "budget: {value: 7, period: month"),
        "queues.yaml:32:14: error: 'value': unknown key",
    ),
    "nearly a key of its level": (
        ("queues.yaml", "budget: {period", "budget: {perod"),
        "queues.yaml:32:14: error: 'perod': unknown key; did you mean 'period'?",
    ),
}


@pytest.mark.parametrize(("edit", "expected"), NESTED.values(), ids=NESTED.keys())
def test_fr_cfg_05_a_key_that_its_level_does_not_know_is_an_error(
    edit: tuple[str, str, str], expected: str, tmp_path: Path
) -> None:
    result = load(tmp_path, edited(*edit))
    assert result.policy is None, "a key is never ignored"
    (found,) = [text for text in texts(result) if "unknown key" in text]
    assert found.startswith(expected)


def test_a_name_that_kubernetes_would_refuse_is_named_with_the_nearest_that_it_takes(tmp_path: Path) -> None:
    result = load(tmp_path, edited(F, "  home:\n", "  Home_1:\n"))
    assert texts(result)[0] == (
        "fleet.yaml:8:3: error: 'Home_1': not a DNS-1123 label (lower case letters, digits and '-', at most 63); "
        "for example 'home-1'"
    )


def test_the_mistakes_of_all_files_are_reported_together(tmp_path: Path) -> None:
    files = {
        **edited(F, "    region: fi-north\n", "    region: fi-nort\n"),
        P: SMALL[P].replace("max_age_days: 400", "max_age_days: 0"),
        Q: SMALL[Q].replace("cpu: {nodes: 1}", "cpu: {gpus: 1, nodes: 1}").replace("amount: 1000", "amount: -1"),
        D: SMALL[D].replace("size: 12TB", "size: -12TB").replace("size: 38Ti", "size: much"),
    }
    places = [text.partition(" ")[0] for text in texts(load(tmp_path, files))]
    assert places == [
        "data.yaml:12:11:",
        "data.yaml:16:11:",
        "fleet.yaml:27:13:",
        "prices.yaml:1:15:",
        "queues.yaml:20:9:",
        "queues.yaml:32:37:",
    ]


def test_a_schema_error_in_one_file_does_not_make_its_names_unknown_to_others(tmp_path: Path) -> None:
    result = load(tmp_path, edited(F, "        purchase: on-demand\n", ""))
    assert [text.partition(":")[0] for text in texts(result)] == ["fleet.yaml"]


def test_one_look_at_a_file_shows_its_twins_its_wrong_shapes_and_its_wrong_names(tmp_path: Path) -> None:
    text = SMALL[F].replace("  northgrid: {}\n", "  northgrid: {}\n  onprem: {}\n")
    text = text.replace("{count: 2, capacity: {cpu: 64", "{count: two, capacity: {cpu: 64")
    text = text.replace("    region: fi-north\n", "    region: fi-nort\n").replace("{flavor: h100,", "{flavor: h10,")
    assert [found.partition(" error: ")[2] for found in texts(load(tmp_path, {**SMALL, F: text}))] == [
        "'onprem': the key is there twice, first on line 2; remove or rename one of them",
        "'two': not a whole number below 10^9; write digits only, such as 8",
        "'fi-nort': not one of the regions of fleet.yaml; did you mean 'fi-north'?",
        "'h10': not a flavor of cloud; did you mean 'h100'?",
    ]


def test_what_is_left_out_for_its_shape_is_not_called_unknown(tmp_path: Path) -> None:
    files = {
        F: SMALL[F].replace("  fi-north: {country: FI}", "  fi-north: {country: XX}").replace("count: 4", "count: -4"),
        Q: SMALL[Q].replace("value: 5000", "value: high"),
        R: SMALL[R].replace("members: [DE, FI, FR]", "members: [DE, FI, F]"),
        D: SMALL[D].replace("lake: {", "lake: {zone: 1, "),
        P: SMALL[P].replace("usd_per_hour: 0.012", "usd_per_hour: cheap"),
    }
    assert [found.partition(" error: ")[2].partition(":")[0] for found in texts(load(tmp_path, files))] == [
        "'zone'",
        "'XX'",
        "'-4'",
        "'cheap'",
        "'high'",
        "'F'",
    ]
