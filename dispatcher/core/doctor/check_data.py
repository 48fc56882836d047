"""The catalog's endpoint and the stores' buckets: their keys on the hub, and what the daemon last saw of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dispatcher.core.doctor.facts import HUB, CatalogFacts, ClusterFacts, DaemonFacts, DataKeyFacts, FleetFacts
from dispatcher.core.doctor.findings import Code, Finding, Where, found
from dispatcher.core.policy import CatalogStanding, Policy
from dispatcher.core.replicas import KEEPS, Presence
from dispatcher.core.units import span

CATALOG = "catalog"


def check_data(facts: FleetFacts) -> Iterator[Finding]:
    policy = facts.blueprint.policy if facts.blueprint is not None else None
    if policy is None:
        return
    if facts.hub.cluster.reachable:
        for key in facts.hub.data_keys:
            yield from _key(key)
        yield from _denied(facts.hub.cluster)
    if policy.catalog is None and not _looked_into(policy):
        return
    daemon = facts.daemon
    if daemon is None or daemon.error:
        asked = f"{daemon.server}: {daemon.error}" if daemon is not None else "the daemon was not asked"
        yield found(Code.DATA_NOT_ASKED, Where(place="data.yaml"), f"{asked}; data.yaml names {_named(policy)}")
        return
    if daemon.catalog is not None and policy.catalog is not None:
        yield from _catalog(daemon.catalog, policy.catalog.source.url.partition("?")[0])
    yield from _stores(daemon, policy)


def _looked_into(policy: Policy) -> dict[str, int]:
    """The stores that name their bucket, with how often each replica there is looked for, in seconds."""
    return {str(name): s.objects.every_s for name, s in sorted(policy.stores.items()) if s.objects is not None}


def _named(policy: Policy) -> str:
    stores = _looked_into(policy)
    parts = ["a catalog"] if policy.catalog is not None else []
    parts += [f"the objects of {', '.join(stores)}"] if stores else []
    return " and ".join(parts)


# --- keys --------------------------------------------------------------------------------------------------------


def _key(key: DataKeyFacts) -> Iterator[Finding]:
    if not key.fault:
        return
    namespace, _, name = key.where.partition("/")
    fix = f"kubectl -n {namespace} create secret generic {name} --from-file={key.key}=FILE"
    yield found(Code.DATA_KEY_MISSING, Where(HUB, "Secret", name, namespace), f"{key.fault}; {_whose(key.of)}", fix)


def _whose(of: str) -> str:
    return "it is to hold the catalog's token" if of == CATALOG else f"it is to hold the key of store {of}"


def _denied(hub: ClusterFacts) -> Iterator[Finding]:
    account = hub.account or "the account of this kubeconfig"
    for verb in hub.not_granted:
        if verb.resource == "secrets":
            where = Where(HUB, "Secret", verb.name, verb.namespace)
            fix = (
                f"add ../../data-access to `components` of your overlay of deploy/hub, with {verb.name} in its Role, "
                f"in namespace {verb.namespace}"
            )
            yield found(Code.DATA_KEY_DENIED, where, f"{account} may not {verb.text()}", fix)


# --- what the daemon saw -----------------------------------------------------------------------------------------


def _catalog(catalog: CatalogFacts, url: str) -> Iterator[Finding]:
    where = Where(kind=CATALOG, name=url)
    said = "; ".join(catalog.trouble)
    if catalog.standing is CatalogStanding.READ:
        if said:
            age = f"; its last good answer is {span(catalog.age_s)} old" if catalog.age_s is not None else ""
            yield found(Code.CATALOG_FAILS, where, f"{said}{age}")
        return
    age = "it gave no good answer since the start"
    if catalog.standing is CatalogStanding.OLD and catalog.age_s is not None:
        age = f"its last good answer is {span(catalog.age_s)} old"
    yield found(Code.CATALOG_OLD, where, f"{age}: {said}" if said else age)


def _stores(daemon: DaemonFacts, policy: Policy) -> Iterator[Finding]:
    """One finding a store and cause: a bucket that is gone has all of its replicas in it. A standby never looks."""
    every = _looked_into(policy)
    mine = [replica for replica in daemon.replicas if replica.store in every]
    total = Counter(replica.store for replica in mine)
    unseen: Counter[tuple[str, str]] = Counter()
    late: Counter[str] = Counter()
    for replica in mine:
        if replica.age_s is None or replica.age_s > KEEPS * every[replica.store]:
            late[replica.store] += 1
        elif replica.presence is Presence.UNKNOWN:
            unseen[replica.store, replica.why] += 1
    for (store, why), count in sorted(unseen.items()):
        seen = f"{count} of {total[store]} replicas: {why or 'no reason given'}"
        yield found(Code.STORE_UNSEEN, Where(kind="store", name=store), seen)
    if daemon.leads is False:
        return
    for store, count in sorted(late.items()):
        seen = f"{count} of {total[store]} replicas were not looked for within {span(KEEPS * every[store])}"
        yield found(Code.REPLICA_NOT_LOOKED, Where(kind="store", name=store), seen)
