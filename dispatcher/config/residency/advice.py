"""What the law makes of this fleet and this catalog: labels that can run nowhere, data that lies where it must not."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from dispatcher.config.blueprint import DATA, FLEET, Draft
from dispatcher.core.legality import Office, office_of
from dispatcher.core.policy import UNLABELLED, DataSet, Policy
from residency.facts import Place, Question
from residency.judge import judge
from residency.vocabulary import Answer, Flow

AT_REST = (Flow.REPLICATE, Flow.PROCESS, Flow.REPLICATE_SEALED)
"""Data may lie where one of these is legal."""


def advise(draft: Draft, policy: Policy, now: datetime) -> None:
    """Add the warnings that need the whole blueprint, compiled."""
    office = office_of(policy)
    _dead_permits(draft, office, policy, now)
    _old_facts(draft, policy, now)
    for name, data_set in policy.data_sets.items():
        labels = office.cargo(str(name), now).labels.names
        if UNLABELLED in labels:
            own = not data_set.labels and not data_set.derived_from
            what = "carries no label" if own else "is made from data without a label"
            draft.warn(DATA, ("data_sets", name), name, (f"{what}: the rule of 'unlabelled' holds", "classify it"))
        _at_rest(draft, office, data_set, labels, now)


def _dead_permits(draft: Draft, office: Office, policy: Policy, now: datetime) -> None:
    """A label that rules speak of and that no cluster satisfies: data that carries it waits for ever."""
    permitted = {label for rule in policy.residency.rules for label in rule.labels}
    carried = {label for data_set in policy.data_sets.values() for label in data_set.labels}
    carried |= {label for queue in policy.queues.values() for label in queue.default_labels}
    for label in policy.labels:
        if label not in permitted or label not in carried or label == UNLABELLED:
            continue
        sites = (cluster.site for cluster in policy.clusters.values())
        if not any(_answer(office, label, Flow.PROCESS, site, (), now) is Answer.ALLOW for site in sites):
            said = ("no cluster satisfies its rules: such data can run nowhere", "check the rules and the site facts")
            draft.warn(DATA, ("labels", label), label, said)


def _old_facts(draft: Draft, policy: Policy, now: datetime) -> None:
    for name, cluster in policy.clusters.items():
        attested = cluster.site.attested
        ends = attested.ends() if attested is not None else None
        if ends is not None and ends <= now:
            said = ("the site facts are no longer attested", "have them attested anew")
            last = (ends - timedelta(microseconds=1)).date()
            draft.warn(FLEET, ("clusters", name, "site", "attested", "until"), last, said)


def _at_rest(draft: Draft, office: Office, data_set: DataSet, labels: Iterable[str], now: datetime) -> None:
    """Allowed at rest or not, a person must look."""
    policy, home = office.policy, office.cargo(str(data_set.name), now).home
    places = [policy.stores[store].site for store in data_set.replica_stores]
    places += [policy.clusters[cluster].site for cluster in data_set.replica_clusters]
    for label in labels:
        for place in places:
            answers = {_answer(office, label, flow, place, home, now) for flow in AT_REST}
            if Answer.ALLOW in answers:
                continue
            where = f"lies in {place.name} ({place.country or 'country not known'}), where "
            if Answer.INDETERMINATE in answers:
                said = (f"{where}facts that the rules of '{label}' ask for are not known", "have them attested")
            else:
                said = (f"{where}the rules of '{label}' do not let it lie", "move it, or correct the label")
            draft.warn(DATA, ("data_sets", data_set.name, "replicas"), data_set.name, said)


def _answer(office: Office, label: str, flow: Flow, place: Place, home: tuple[str, ...], now: datetime) -> Answer:
    return judge(office.law, Question(flow, now, place, place, home=home, products=()), label).answer
