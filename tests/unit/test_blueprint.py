"""A blueprint as a whole: what it compiles to, what its digest tells, and how an edit reaches a running daemon."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from datetime import date
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.config import BlueprintWatcher, load_blueprint
from dispatcher.config.files import Content
from dispatcher.config.lint import lint_text, to_json
from dispatcher.config.loader import load_content
from dispatcher.config.strictyaml import Quoted, parse, plain
from dispatcher.core.ids import QueueName
from dispatcher.core.legality import office_of
from dispatcher.core.policy import Away, ComputePrice, Policy, PriceUnit, Purchase, Unreachable
from dispatcher.core.snapshot import Taint
from dispatcher.core.workload import WorkloadClass
from tests.examples import examples
from tests.unit.blueprint_files import EXAMPLE, NOW, SMALL, R, edited, load, texts, write

# --- the example -------------------------------------------------------------------------------------------------


@cache
def example() -> Policy:
    result = load_blueprint(EXAMPLE, NOW)
    assert [problem.text() for problem in result.problems] == []
    assert result.policy is not None
    return result.policy


def test_the_example_is_the_plan_of_four_clusters_and_seven_queues() -> None:
    policy = example()
    assert list(policy.clusters) == ["cloud-a-fi", "cloud-b-fr", "cloud-c-us", "onprem-eu"]
    assert sorted(policy.queues) == [
        "autonomy-training",
        "data-flywheel",
        "enterprise-ai",
        "interactive",
        "perception",
        "release-gates",
        "simulation",
    ]
    assert sorted(policy.classes) == sorted(WorkloadClass)
    assert [str(c.site.country) for c in policy.clusters.values()] == ["FI", "FR", "US", "DE"]


def test_every_flavor_of_the_example_has_a_price_and_small_enough_nodes() -> None:
    policy = example()
    for cluster in policy.clusters.values():
        for flavor in cluster.flavors.values():
            key = (cluster.provider, str(cluster.region), str(flavor.product or "cpu"), str(flavor.purchase))
            assert policy.prices.compute[key].usd_micro_per_hour > 0
            assert flavor.nodes is not None
            assert 2 <= flavor.nodes.count <= 6


def test_every_pair_of_regions_of_the_example_has_an_egress_price() -> None:
    policy = example()
    regions = sorted({str(cluster.region) for cluster in policy.clusters.values()})
    assert sorted(policy.prices.egress) == [(a, b) for a in regions for b in regions]


def test_a_data_set_inherits_the_labels_of_everything_it_was_made_from() -> None:
    assert labels_of(example(), "sim-scenes") == ("internal", "public")
    assert labels_of(example(), "person-crops") == ("personal-eu",)


def labels_of(policy: Policy, name: str) -> tuple[str, ...]:
    return office_of(policy).cargo(name, NOW).labels.names


# --- compiling ---------------------------------------------------------------------------------------------------


def compiled(tmp_path: Path, files: dict[str, str | bytes] | None = None) -> Policy:
    result = load(tmp_path, files)
    assert texts(result) == []
    assert result.policy is not None
    return result.policy


def test_money_is_compiled_exactly_to_micro_usd(tmp_path: Path) -> None:
    policy = compiled(tmp_path, edited("prices.yaml", '"2.95"', "2.950001"))
    assert policy.prices.compute[("northgrid", "fi-north", "h100-80gb", "on-demand")] == ComputePrice(
        provider="northgrid",
        region="fi-north",
        product="h100-80gb",
        purchase=Purchase.ON_DEMAND,
        unit=PriceUnit.GPU_HOUR,
        usd_micro_per_hour=2_950_001,
        source="rate card",
        dated=date(2026, 11, 2),
    )


SIZES = [("12TB", 12 * 10**12), ("38Ti", 38 * 2**40), ("38TiB", 38 * 2**40), ("1.5GB", 1_500_000_000), ("4096", 4096)]


@pytest.mark.parametrize(("written", "size_bytes"), SIZES)
def test_a_size_is_read_to_the_byte(written: str, size_bytes: int, tmp_path: Path) -> None:
    policy = compiled(tmp_path, edited("data.yaml", "size: 12TB", f"size: {written}"))
    assert policy.data_sets["roads"].size_bytes == size_bytes


def test_a_size_that_nobody_wrote_is_unknown_and_not_zero(tmp_path: Path) -> None:
    policy = compiled(tmp_path, edited("data.yaml", "    size: 12TB\n", ""))
    assert policy.data_sets["roads"].size_bytes is None


def test_durations_become_seconds_and_places_become_lines(tmp_path: Path) -> None:
    policy = compiled(tmp_path)
    assert policy.classes[WorkloadClass.TRAINING].patience_s == 300
    assert policy.classes[WorkloadClass.TRAINING].delay_price_usd_micro_per_hour == 4_000_000
    assert policy.clusters["cloud"].line == "fleet.yaml:25:3"
    assert policy.labels["personal"] == "data.yaml:5:3"


def test_what_becomes_of_work_out_of_reach_is_said_by_class_and_by_queue(tmp_path: Path) -> None:
    plain = compiled(tmp_path / "plain")
    assert plain.classes[WorkloadClass.TRAINING].on_unreachable == Unreachable(Away.STAY)
    assert plain.queues[QueueName("training")].on_unreachable is None
    assert plain.limits.mass_loss_percent == 50
    queue = "    on_unreachable: {do: move, after: PT30M}\n"
    moved = compiled(tmp_path / "moved", edited("queues.yaml", "    default_labels: [public]\n", queue))
    assert moved.queues[QueueName("training")].on_unreachable == Unreachable(Away.MOVE, 1800)
    assert moved.digest != plain.digest


def test_a_flavor_carries_its_nodes_with_a_pod_limit_and_taints(tmp_path: Path) -> None:
    taint = "        taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]\n"
    policy = compiled(
        tmp_path, edited("fleet.yaml", "        purchase: on-demand\n", f"        purchase: spot\n{taint}")
    )
    flavor = policy.clusters["cloud"].flavors["h100"]
    assert (flavor.product, flavor.purchase, flavor.speed_permille) == ("h100-80gb", Purchase.SPOT, 1000)
    assert flavor.nodes is not None
    assert flavor.nodes.taints == (Taint("nvidia.com/gpu", "present", "NoSchedule"),)
    assert dict(flavor.nodes.allocatable.items) == {
        "cpu": 192_000,
        "memory": 2 * 2**40,
        "nvidia.com/gpu": 8,
        "pods": 110,
    }


def test_fr_cfg_02_an_exact_route_goes_before_the_default_and_an_absent_one_is_unknown(tmp_path: Path) -> None:
    egress = compiled(tmp_path).prices.egress
    assert egress[("de-home", "fi-north")].usd_micro_per_gb == 4_000
    assert egress[("fi-north", "de-home")].usd_micro_per_gb == 20_000
    assert ("de-home", "de-home") not in egress
    row = "  - {from_region: fi-north, to_region: de-home, usd_per_gb: 0.02, source: rate, dated: 2026-11-02}\n"
    without = load(tmp_path / "without", edited("prices.yaml", row, ""))
    assert without.policy is not None
    assert ("fi-north", "de-home") not in without.policy.prices.egress, "unknown, never another route's price"
    (told,) = [w.text() for w in without.warnings if "egress" in w.text()]
    assert "'fi-north': no egress price to de-home: moving data there has an unknown price" in told


def test_fr_pol_01_data_that_nobody_classified_gets_the_rule_of_home(tmp_path: Path) -> None:
    policy = compiled(tmp_path, edited("data.yaml", "    labels: [public]\n", ""))
    assert labels_of(policy, "roads") == ("unlabelled",)
    assert labels_of(policy, "crops") == ("personal", "unlabelled")


def test_a_fleet_may_add_products_and_spellings_of_its_own(tmp_path: Path) -> None:
    own = "products:\n  npu-64gb: {memory_gib: 64, aliases: [ACME NPU]}\nclusters:\n  home:\n"
    files = edited("fleet.yaml", "clusters:\n  home:\n", own)
    files["fleet.yaml"] = str(files["fleet.yaml"]).replace("product: NVIDIA-H100-80GB-HBM3\n", "product: acme_npu\n")
    files["fleet.yaml"] = str(files["fleet.yaml"]).replace(
        "labels: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}\n        purchase: on-demand",
        "labels: {nvidia.com/gpu.product: ACME-NPU}\n        purchase: on-demand",
    )
    policy = compiled(tmp_path, files)
    assert policy.clusters["cloud"].flavors["h100"].product == "npu-64gb"


# --- digest ------------------------------------------------------------------------------------------------------

CHANGES = [
    pytest.param("prices.yaml", '"2.95"', '"2.96"', id="a price"),
    pytest.param("data.yaml", "labels: [personal]", "labels: [personal, public]", id="a label"),
    pytest.param(R, "members: [DE, FI, FR]", "members: [DE, FI]", id="a set of countries"),
    pytest.param("queues.yaml", "amount: 1000", "amount: 1001", id="a budget that no decision reads yet"),
    pytest.param("fleet.yaml", "{flavor: h100, max_nodes: 2}", "{flavor: h100, max_nodes: 3}", id="a node pool"),
]


@pytest.mark.parametrize(("file", "old", "new"), CHANGES)
def test_another_content_has_another_digest(file: str, old: str, new: str, tmp_path: Path) -> None:
    assert compiled(tmp_path / "a").digest != compiled(tmp_path / "b", edited(file, old, new)).digest


def test_the_digest_is_not_of_the_spelling(tmp_path: Path) -> None:
    other = edited("data.yaml", "size: 12TB", "size: '12000GB'   # the same number of bytes")
    assert compiled(tmp_path / "a").digest == compiled(tmp_path / "b", other).digest


def block(value: object, dice: random.Random, indent: int = 0) -> Iterator[str]:
    """The same content as YAML in block style, with shuffled keys, comments and blank lines strewn in."""
    pad = " " * indent
    items = list(value.items()) if isinstance(value, dict) else [("-", item) for item in value]
    if isinstance(value, dict):
        dice.shuffle(items)
    for key, item in items:
        if dice.random() < 0.2:
            yield dice.choice(["", f"{pad}# a remark: [", "        # another"])
        head = f"{pad}-" if key == "-" else f"{pad}{key}:"
        if isinstance(item, (dict, list)) and item:
            yield head
            yield from block(item, dice, indent + 2)
        elif isinstance(item, (dict, list)):
            yield f"{head} {'{}' if isinstance(item, dict) else '[]'}"
        else:
            yield f'{head} "{item}"' if isinstance(item, Quoted) else f"{head} {item}"


def rewritten(text: str, dice: random.Random) -> str:
    root, problems = parse("x.yaml", text.encode())
    assert root is not None, problems
    return "\n".join(block(plain(root), dice)) + "\n"


def digest_of(files: dict[str, str]) -> str:
    content = Content(tuple((name, text.encode()) for name, text in sorted(files.items())), (), ())
    result = load_content(content, Path("blueprint"), NOW)
    assert texts(result) == []
    assert result.policy is not None
    return result.policy.digest


@given(st.integers(0, 2**32))
@examples(12)
def test_comments_blank_lines_and_the_order_of_keys_never_change_the_digest(seed: int) -> None:
    dice = random.Random(seed)
    assert digest_of({name: rewritten(text, dice) for name, text in SMALL.items()}) == digest_of(SMALL)


# --- files and reload --------------------------------------------------------------------------------------------

MISSING = [
    pytest.param(
        {},
        "error: 'blueprint': the blueprint's folder cannot be read (no such file or directory); mount it",
        id="no folder at all",
    ),
    pytest.param(
        {"fleet.yml": SMALL["fleet.yaml"]},
        "fleet.yaml:1:1: error: the file is missing; did you mean 'fleet.yml'?",
        id="another ending",
    ),
]


@pytest.mark.parametrize(("files", "expected"), MISSING)
def test_what_is_not_there_is_said(files: dict[str, str], expected: str, tmp_path: Path) -> None:
    folder = tmp_path / "blueprint"
    if files:
        write(folder, {**{k: v for k, v in SMALL.items() if k != "fleet.yaml"}, **files})
    result = load_blueprint(folder, NOW)
    assert result.policy is None
    assert texts(result) == [expected]


def test_a_folder_where_a_file_should_be_and_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", dict(SMALL))
    (folder / "data.yaml").unlink()
    (folder / "data.yaml").mkdir()
    assert texts(load_blueprint(folder, NOW)) == [
        "data.yaml:1:1: error: a folder, where a file is expected; put the file here"
    ]
    assert "cannot be read (not a directory)" in texts(load_blueprint(folder / "fleet.yaml", NOW))[0]


def test_a_pipe_is_refused_rather_than_waited_for(tmp_path: Path) -> None:
    folder = write(tmp_path, dict(SMALL))
    (folder / "data.yaml").unlink()
    os.mkfifo(folder / "data.yaml")
    assert texts(load_blueprint(folder, NOW)) == ["data.yaml:1:1: error: not a plain file; put the file here"]


def test_an_emptied_file_is_an_error_and_never_an_empty_policy(tmp_path: Path) -> None:
    result = load(tmp_path, {**SMALL, "data.yaml": ""})
    assert texts(result) == ["data.yaml:1:1: error: the file is empty; write the file's keys"]
    assert result.policy is None


def test_a_yaml_file_that_nobody_reads_is_pointed_out(tmp_path: Path) -> None:
    result = load(tmp_path, {**SMALL, "price.yaml": "x: 1\n"})
    assert [warning.text() for warning in result.warnings] == [
        "price.yaml:1:1: warning: this file is not read; a blueprint has four YAML files, and rules in residency/"
    ]


def test_a_broken_edit_while_running_is_reported_once_and_the_last_good_one_stays(tmp_path: Path) -> None:
    folder = write(tmp_path / "blueprint", dict(SMALL))
    watcher = BlueprintWatcher(folder)
    first = watcher.poll(NOW)
    assert first is not None
    assert first.policy is not None
    assert watcher.poll(NOW) is None

    write(folder, edited("fleet.yaml", "count: 4", "count: four"))
    broken = watcher.poll(NOW)
    assert broken is not None
    assert broken.policy is None
    assert texts(broken) == [
        "fleet.yaml:37:24: error: 'four': not a whole number below 10^9; write digits only, such as 8"
    ]
    assert watcher.last_good == first
    assert watcher.poll(NOW) is None

    write(folder, edited("fleet.yaml", "count: 4", "count: 5"))
    mended = watcher.poll(NOW)
    assert mended is not None
    assert watcher.last_good == mended
    assert mended.policy is not None
    assert mended.policy.digest != first.policy.digest


def test_a_folder_that_vanishes_is_an_error_and_comes_back_by_itself(tmp_path: Path) -> None:
    folder = write(tmp_path / "blueprint", dict(SMALL))
    watcher = BlueprintWatcher(folder, seen=load_blueprint(folder, NOW))
    assert watcher.poll(NOW) is None
    folder.rename(tmp_path / "elsewhere")
    gone = watcher.poll(NOW)
    assert gone is not None
    assert not gone.ok
    (tmp_path / "elsewhere").rename(folder)
    back = watcher.poll(NOW)
    assert back is not None
    assert back.ok


def test_a_touched_file_is_no_change(tmp_path: Path) -> None:
    folder = write(tmp_path / "blueprint", dict(SMALL))
    watcher = BlueprintWatcher(folder, seen=load_blueprint(folder, NOW))
    os.utime(folder / "fleet.yaml", (1, 1))
    (folder / "data.yaml").unlink()
    write(folder, {"data.yaml": SMALL["data.yaml"]})
    assert watcher.poll(NOW) is None


def mount(folder: Path, generation: str, files: dict[str, str | bytes]) -> None:
    """Write files as a kubelet mounts a ConfigMap: a new folder, then one atomic swap of the `..data` link. Its keys
    know no folders, so residency/rules.yaml is called residency.rules.yaml there."""
    files = {name.replace("/", "."): text for name, text in files.items()}
    write(folder / generation, files)
    link = folder / "..data_tmp"
    link.symlink_to(generation)
    link.rename(folder / "..data")
    for name in files:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")


def test_fr_cfg_06_a_swapped_mount_is_seen_as_a_whole(tmp_path: Path) -> None:
    folder = tmp_path / "mounted"
    folder.mkdir()
    mount(folder, "..2026_11_29_one", dict(SMALL))
    watcher = BlueprintWatcher(folder)
    first = watcher.poll(NOW)
    assert first is not None
    assert first.policy is not None

    mount(folder, "..2026_11_29_two", edited("prices.yaml", '"2.95"', '"3.10"'))
    second = watcher.poll(NOW)
    assert second is not None
    assert second.policy is not None
    price = second.policy.prices.compute[("northgrid", "fi-north", "h100-80gb", "on-demand")]
    assert price.usd_micro_per_hour == 3_100_000
    assert second.policy.digest != first.policy.digest

    mount(folder, "..2026_11_29_three", edited("prices.yaml", '"2.95"', '"a lot"'))
    third = watcher.poll(NOW)
    assert third is not None
    assert third.policy is None, "refused as a whole: whoever polls keeps the last good one"
    assert [error.text() for error in third.errors] != []


# --- what the commands show --------------------------------------------------------------------------------------


def test_lint_shows_paths_that_open_and_one_line_that_sums_up(tmp_path: Path) -> None:
    result = load(tmp_path / "b", edited("fleet.yaml", "    region: fi-north\n", "    region: fi-nort\n"))
    where = f"{tmp_path}/b"
    assert lint_text(result) == (
        f"{where}/fleet.yaml:27:13: error: 'fi-nort': not one of the regions of fleet.yaml; did you mean 'fi-north'?\n"
        f"{where}: not valid: 1 error, 0 warnings\n"
    )


def test_lint_as_data_has_a_digest_when_it_is_valid(tmp_path: Path) -> None:
    result = load(tmp_path / "b")
    assert result.policy is not None
    assert to_json(result) == {
        "folder": f"{tmp_path}/b",
        "valid": True,
        "digest": result.policy.digest,
        "errors": [],
        "warnings": [],
    }
    assert lint_text(result).endswith(f"digest {result.policy.digest}: 2 clusters, 2 queues, 2 data sets; "
                                      "0 errors, 0 warnings\n")  # fmt: skip
