"""Domains of a topology on a large cluster: the same sums either way, at the cost of nodes where each is a domain."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dispatcher.core.nodes import Demand, NodeTable, node_table
from dispatcher.core.nodeset import NodeMarks, Nodes
from dispatcher.core.packing import pack, pod_group
from dispatcher.core.topology import Domain
from tests.core_builders import node, res

BLOCK, RACK, HOST = "example.org/block", "example.org/rack", "kubernetes.io/hostname"
COUNT = 300


class Tallied(int):
    """A set of nodes that counts how often it is met with another one."""

    met = 0

    def __and__(self, other: int) -> Tallied:
        Tallied.met += 1
        return Tallied(int(self) & other)

    __rand__ = __and__


def cluster() -> NodeTable:
    """30 racks of ten nodes in three blocks; racks of two blocks have the same names, and some nodes lack a label."""
    found = []
    for at in range(COUNT):
        labels = {BLOCK: f"b{at // 100}", RACK: f"r{at // 10 % 10}", HOST: f"n{at:03}"}
        if at % 50 == 49:
            del labels[RACK]
        found.append(node(f"n{at:03}", used=at % 9, labels=labels))
    return node_table(found)


def by_hand(marks: NodeMarks, keys: Sequence[str]) -> dict[tuple[str, ...], Nodes]:
    parts: dict[tuple[str, ...], Nodes] = {}
    for at in range(COUNT):
        values = [next((v for v, nodes in marks.labels.get(key, {}).items() if nodes >> at & 1), None) for key in keys]
        if None not in values:
            name = tuple(str(value) for value in values)
            parts[name] = parts.get(name, 0) | 1 << at
    return parts


@pytest.mark.parametrize("keys", [(), (BLOCK,), (BLOCK, RACK), (RACK,), (BLOCK, RACK, HOST), (RACK, RACK), ("none",)])
def test_nodes_are_split_by_all_labels_and_each_domain_has_the_sum_of_its_nodes(keys: tuple[str, ...]) -> None:
    table = cluster()
    domains = table.frame.domains(Demand(domain=Domain(keys)))
    assert domains.parts == tuple(sorted(by_hand(table.frame.marks, keys).items()))
    eligible = table.eligible(Demand(domain=Domain(keys)))
    sets = [(nodes & eligible, vector[0] + 1) for vector, nodes in table.free.items()]
    expected = [sum((part & nodes).bit_count() * amount for nodes, amount in sets) for _, part in domains.parts]
    assert domains.sums(sets) == expected


def test_a_level_of_hosts_costs_by_nodes_and_not_by_nodes_times_racks() -> None:
    """Splitting walked over every host's name in every rack, and each group over every host for each free amount."""
    table = cluster()
    hosts = table.frame.marks.labels[HOST]
    assert isinstance(hosts, dict)
    hosts.update({value: Tallied(nodes) for value, nodes in hosts.items()})
    demand = Demand(domain=Domain((BLOCK, RACK, HOST)))
    Tallied.met = 0
    table.frame.domains(demand)
    pack(table, [pod_group(table, f"g{at}", 1, res(8), demand) for at in range(5)])
    assert Tallied.met <= 6 * COUNT
