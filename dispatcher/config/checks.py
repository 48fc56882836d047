"""References between the files, and values that contradict each other: every one an error, all of them reported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dispatcher.config.blueprint import DATA, FLEET, PRICES, QUEUES, Draft, gpu_resource
from dispatcher.config.data_file import DataStore
from dispatcher.config.fleet_file import Cluster, Flavor
from dispatcher.config.price_book import ANY_OTHER, canonical_product, unit_for
from dispatcher.config.prices_file import USD
from dispatcher.config.problems import did_you_mean
from dispatcher.config.queues_file import Queue, Share
from dispatcher.core.ids import ProductName
from dispatcher.core.policy import UNLABELLED
from dispatcher.core.products import (
    BUILTIN_PRODUCTS,
    PRODUCT_LABEL,
    is_shared,
    mig_profile_of,
    nearest,
    normalise,
    product_of,
    whole_of,
)
from dispatcher.core.resources import WHOLE_GPU, is_gpu

Path = tuple[str | int, ...]


def check_references(draft: Draft) -> None:
    """Add to the draft every broken reference and contradiction of the files whose schema held."""
    _products(draft)
    _clusters(draft)
    _round_trips(draft)
    _classes(draft)
    _queues(draft)
    _data(draft)
    _prices(draft)


def _refer(draft: Draft, file: str, path: Path, value: str, target: tuple[str, str]) -> bool:
    """Whether `value` is one of the names under a key of a file; (file, key) is the target. Reports it when not."""
    target_file, key = target
    if not draft.readable(target_file):
        return False
    known = draft.names(target_file, key)
    if value in known:
        return True
    what = f"not one of the {key.replace('_', ' ')} of {target_file}"
    draft.error(file, path, value, (what, did_you_mean(value, known)))
    return False


def _label(draft: Draft, file: str, path: Path, label: str) -> None:
    if label != UNLABELLED:
        _refer(draft, file, path, label, (DATA, "labels"))


def _refer_key(draft: Draft, file: str, path: Path, known: tuple[str, ...], what: str) -> bool:
    """The same for a name that is the key at a path."""
    if str(path[-1]) in known:
        return True
    draft.key_error(file, path, (what, did_you_mean(str(path[-1]), known)))
    return False


def _products(draft: Draft) -> None:
    if draft.fleet is None:
        return
    spellings = {alias: name for name, p in BUILTIN_PRODUCTS.items() for alias in (str(name), *p.aliases)}
    for name, own in draft.fleet.products.items():
        built_in = BUILTIN_PRODUCTS.get(ProductName(name))
        if built_in is not None and built_in.memory_gib != own.memory_gib:
            rule = f"the built-in product has {built_in.memory_gib} GiB"
            draft.error(
                FLEET, ("products", name, "memory_gib"), own.memory_gib, (rule, "give another card another name")
            )
        for index, alias in enumerate((name, *own.aliases)):
            owner = spellings.setdefault(normalise(alias), ProductName(name))
            if owner != name:
                path: Path = ("products", name) if index == 0 else ("products", name, "aliases", index - 1)
                draft.error(FLEET, path, alias, (f"a spelling of {owner} already", "one spelling means one product"))


def _round_trips(draft: Draft) -> None:
    first: dict[tuple[str, str], int] = {}
    for index, row in enumerate(draft.fleet.round_trips if draft.fleet else ()):
        for end, region in enumerate(row.between):
            _refer(draft, FLEET, ("round_trips", index, "between", end), region, (FLEET, "regions"))
        pair = (min(row.between), max(row.between))
        if first.setdefault(pair, index) != index:
            line = draft.mark(FLEET, "round_trips", first[pair]).line
            said = (f"measured twice, first on line {line}", "remove one of the rows: it is the same both ways")
            draft.error(FLEET, ("round_trips", index, "between"), " ".join(pair), said)


def _clusters(draft: Draft) -> None:
    for name, cluster in (draft.fleet.clusters if draft.fleet else {}).items():
        at: Path = ("clusters", name)
        _refer(draft, FLEET, (*at, "provider"), cluster.provider, (FLEET, "providers"))
        if _refer(draft, FLEET, (*at, "region"), cluster.region, (FLEET, "regions")):
            _same_country(draft, at, cluster)
        for flavor_name, flavor in cluster.flavors.items():
            _flavor(draft, (*at, "flavors", flavor_name), flavor)
        for pool_name, pool in cluster.node_pools.items():
            flavors = draft.names(FLEET, "clusters", name, "flavors")
            if pool.flavor not in flavors:
                said = (f"not a flavor of {name}", did_you_mean(pool.flavor, flavors))
                draft.error(FLEET, (*at, "node_pools", pool_name, "flavor"), pool.flavor, said)


def _same_country(draft: Draft, at: Path, cluster: Cluster) -> None:
    region = draft.fleet.regions.get(cluster.region) if draft.fleet else None
    if region is not None and cluster.site.country is not None and cluster.site.country != region.country:
        rule = f"region {cluster.region} lies in {region.country}"
        draft.error(FLEET, (*at, "site", "country"), cluster.site.country, (rule, "one of the two is wrong"))


def _flavor(draft: Draft, at: Path, flavor: Flavor) -> None:
    gpus = [name for name in flavor.nodes.capacity if is_gpu(name)]
    capacity: Path = (*at, "nodes", "capacity")
    if len(gpus) > 1:
        draft.key_error(FLEET, (*capacity, gpus[1]), ("a second kind of GPU in one flavor", "split it in two flavors"))
    if flavor.product is None:
        if gpus:
            said = ("a flavor with GPUs and no product", f"add product:, or remove {gpus[0]}")
            draft.key_error(FLEET, (*capacity, gpus[0]), said)
        return
    product = _product(draft, FLEET, (*at, "product"), flavor.product)
    if product is None:
        return
    if not gpus:
        draft.error(FLEET, (*at, "product"), flavor.product, ("its nodes have no GPU", f"add {WHOLE_GPU} to capacity"))
        return
    _fits_product(draft, at, flavor, product)


def _product(draft: Draft, file: str, path: Path, text: str) -> ProductName | None:
    """Resolve a product through the alias table, reporting what cannot be (FR-CFG-01)."""
    found = product_of(text, draft.products)
    if found is None and not _all_products(draft):
        return None
    if found is None and is_shared(text):
        draft.error(
            file, path, text, ("a time-sliced card, which is not a whole one", "use MIG slices, or whole cards")
        )
    elif found is None:
        near = nearest(text, draft.products)
        fix = f"did you mean '{near}'?" if near else "add it to fleet.yaml's products"
        draft.error(file, path, text, ("unknown GPU product", fix))
    return found


def _all_products(draft: Draft) -> bool:
    """Whether the fleet's own products could all be read, so that what is not in the table is really unknown."""
    return draft.fleet is not None and len(draft.fleet.products) == len(draft.names(FLEET, "products"))


def _fits_product(draft: Draft, at: Path, flavor: Flavor, product: ProductName) -> None:
    """Product, node label and resource must speak of the same thing."""
    profile = draft.products[product].mig_profile
    resource = gpu_resource(flavor) or ""
    label = flavor.labels.get(PRODUCT_LABEL)
    labelled = product_of(label, draft.products) if label is not None else None
    if labelled is not None and labelled not in (product, whole_of(product)):
        said = (f"the label of {labelled}, where the flavor is {product}", "give the product its own label")
        draft.error(FLEET, (*at, "labels", PRODUCT_LABEL), label, said)
    sliced = mig_profile_of(resource)
    wanted = WHOLE_GPU if profile is None else f"nvidia.com/mig-{profile}"
    # With one MIG profile a node, the device plugin's "single" strategy offers slices under the whole GPU's name.
    single = profile is not None and resource == WHOLE_GPU and labelled == product
    if resource != wanted and not single and (sliced or profile):
        said = (f"not what {product} is offered as", f"write {wanted}")
        draft.key_error(FLEET, (*at, "nodes", "capacity", resource), said)


def _classes(draft: Draft) -> None:
    for name, plan in (draft.queues.classes if draft.queues else {}).items():
        for index, region in enumerate(plan.users):
            _refer(draft, QUEUES, ("classes", str(name), "users", index), region, (FLEET, "regions"))


def _queues(draft: Draft) -> None:
    taken: dict[tuple[str, str], str] = {}
    for name, queue in (draft.queues.queues if draft.queues else {}).items():
        at: Path = ("queues", name)
        _refer(draft, QUEUES, (*at, "priority"), queue.priority, (QUEUES, "priorities"))
        for index, label in enumerate(queue.default_labels):
            _label(draft, QUEUES, (*at, "default_labels", index), label)
        owner = taken.setdefault((queue.namespace, queue.local_queue), name)
        if owner != name:
            rule = f"{queue.namespace}/{queue.local_queue} is the LocalQueue of '{owner}' already"
            draft.error(QUEUES, (*at, "local_queue"), queue.local_queue, (rule, "give it another name"))
        _shares(draft, at, queue)


def _shares(draft: Draft, at: Path, queue: Queue) -> None:
    if not draft.readable(FLEET):
        return
    clusters = draft.names(FLEET, "clusters")
    for cluster, shares in queue.shares.items():
        path: Path = (*at, "shares", cluster)
        if not _refer_key(draft, QUEUES, path, clusters, "not one of the clusters of fleet.yaml"):
            continue
        flavors = draft.names(FLEET, "clusters", cluster, "flavors")
        for flavor, share in shares.items():
            if _refer_key(draft, QUEUES, (*path, flavor), flavors, f"not a flavor of {cluster}"):
                known = draft.fleet.clusters.get(cluster) if draft.fleet else None
                _unit(draft, (*path, flavor), share, known.flavors.get(flavor) if known else None)


def _unit(draft: Draft, path: Path, share: Share, flavor: Flavor | None) -> None:
    if flavor is not None and share.gpus is not None and gpu_resource(flavor) is None:
        said = ("a flavor without GPUs", "write nodes: instead of gpus:")
        draft.error(QUEUES, (*path, "gpus"), share.gpus, said)


def _data(draft: Draft) -> None:
    if draft.data is None:
        return
    for name, store in draft.data.stores.items():
        _refer(draft, DATA, ("stores", name, "provider"), store.provider, (FLEET, "providers"))
        if _refer(draft, DATA, ("stores", name, "region"), store.region, (FLEET, "regions")):
            _store_country(draft, name, store)
    for name, entry in draft.data.data_sets.items():
        at: Path = ("data_sets", name)
        for index, label in enumerate(entry.labels):
            _label(draft, DATA, (*at, "labels", index), label)
        _refer_all(draft, (*at, "replicas", "stores"), entry.replicas.stores, (DATA, "stores"))
        _refer_all(draft, (*at, "replicas", "clusters"), entry.replicas.clusters, (FLEET, "clusters"))
        if not draft.catalog_unread:
            _refer_all(draft, (*at, "derived_from"), entry.derived_from, (DATA, "data_sets"))
    for index, row in enumerate(draft.data.bandwidth):
        for end, region in (("from_region", row.from_region), ("to_region", row.to_region)):
            _refer(draft, DATA, ("bandwidth", index, end), region, (FLEET, "regions"))
    _claims(draft)
    _cycles(draft)


def _claims(draft: Draft) -> None:
    """A claim holds what is in the catalog, on clusters of which the data set itself says that all of it is there."""
    assert draft.data is not None
    clusters = draft.names(FLEET, "clusters")
    for name, entry in draft.data.claims.items():
        at: Path = ("claims", name)
        _refer_all(draft, (*at, "clusters"), entry.clusters or (), (FLEET, "clusters"))
        for cluster, held in (entry.data_sets or {}).items():
            path: Path = (*at, "data_sets", cluster)
            if draft.readable(FLEET):
                _refer_key(draft, DATA, path, clusters, "not one of the clusters of fleet.yaml")
            known = draft.data.data_sets.get(held)
            if known is None and not draft.catalog_unread:
                _refer(draft, DATA, path, held, (DATA, "data_sets"))
            elif known is not None and cluster not in known.replicas.clusters:
                rule = f"data set {held} does not say that it lies on {cluster}"
                draft.error(DATA, path, held, (rule, f"add {cluster} to its replicas.clusters, if all of it is there"))


def _store_country(draft: Draft, name: str, store: DataStore) -> None:
    region = draft.fleet.regions.get(store.region) if draft.fleet else None
    if region is not None and store.site.country not in (None, region.country):
        rule = f"region {store.region} lies in {region.country}"
        draft.error(DATA, ("stores", name, "site", "country"), store.site.country, (rule, "one of the two is wrong"))


def _refer_all(draft: Draft, path: Path, values: Iterable[str], target: tuple[str, str]) -> None:
    for index, value in enumerate(values):
        _refer(draft, DATA, (*path, index), value, target)


def _cycles(draft: Draft) -> None:
    """A data set cannot be made from itself: report each member of a ring once.

    Only what is left when all that ends has been taken away can be in a ring or be made from one; a catalog of tens of
    thousands, with long chains of versions, is not walked anew from each of them.
    """
    assert draft.data is not None
    sets = draft.data.data_sets
    left = _without_ends({name: entry.derived_from for name, entry in sets.items()})
    for name in (one for one in sets if one in left):
        seen: set[str] = set()
        waiting = list(left[name])
        while waiting:
            current = waiting.pop()
            if current == name:
                said = ("derived from itself", "remove one link of the ring")
                draft.key_error(DATA, ("data_sets", name, "derived_from"), said)
                break
            if current not in seen:
                seen.add(current)
                waiting.extend(left[current])


def _without_ends(sources: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    """The graph without all of which every way ends: each that is left has a source that is left."""
    left = {name: {one for one in found if one in sources} for name, found in sources.items()}
    made: dict[str, list[str]] = {name: [] for name in left}
    for name, found in left.items():
        for one in found:
            made[one].append(name)
    ending = [name for name, found in left.items() if not found]
    while ending:
        gone = ending.pop()
        del left[gone]
        for name in made[gone]:
            left[name].discard(gone)
            if not left[name]:
                ending.append(name)
    return {name: tuple(sorted(found)) for name, found in left.items()}


def _prices(draft: Draft) -> None:
    if draft.prices is None:
        return
    first: dict[tuple[str, ...], int] = {}
    for index, row in enumerate(draft.prices.compute):
        at: Path = ("compute", index)
        _refer(draft, PRICES, (*at, "provider"), row.provider, (FLEET, "providers"))
        _refer(draft, PRICES, (*at, "region"), row.region, (FLEET, "regions"))
        product = canonical_product(row.product, draft.products)
        if product is None:
            _product(draft, PRICES, (*at, "product"), row.product)
            continue
        if row.unit is not None and row.unit is not unit_for(product, draft.products):
            said = (f"{product} is sold by the {unit_for(product, draft.products)}", "correct it, or remove the key")
            draft.error(PRICES, (*at, "unit"), row.unit, said)
        key = (row.provider, row.region, product, str(row.purchase))
        _once(draft, at, first, key)
    _routes(draft)
    _requests(draft)
    _rates(draft)


def _requests(draft: Draft) -> None:
    assert draft.prices is not None
    first: dict[tuple[str, ...], int] = {}
    for index, row in enumerate(draft.prices.requests):
        at: Path = ("requests", index)
        _refer(draft, PRICES, (*at, "provider"), row.provider, (FLEET, "providers"))
        _refer(draft, PRICES, (*at, "region"), row.region, (FLEET, "regions"))
        _once(draft, at, first, (row.provider, row.region))


def _rates(draft: Draft) -> None:
    assert draft.prices is not None
    first: dict[tuple[str, ...], int] = {}
    for index, row in enumerate(draft.prices.rates):
        at: Path = ("rates", index)
        if row.currency == USD:
            draft.error(PRICES, (*at, "currency"), USD, ("every price is in USD already", "remove the row"))
        _once(draft, at, first, (row.currency,))


def _routes(draft: Draft) -> None:
    assert draft.prices is not None
    first: dict[tuple[str, ...], int] = {}
    for index, row in enumerate(draft.prices.egress):
        at: Path = ("egress", index)
        _refer(draft, PRICES, (*at, "from_region"), row.from_region, (FLEET, "regions"))
        if row.to_region != ANY_OTHER:
            _refer(draft, PRICES, (*at, "to_region"), row.to_region, (FLEET, "regions"))
        for key, provider in (("from_provider", row.from_provider), ("to_provider", row.to_provider)):
            if provider is not None:
                _refer(draft, PRICES, (*at, key), provider, (FLEET, "providers"))
        between = (row.from_provider, row.to_provider) if row.from_provider and row.to_provider else ()
        _once(draft, at, first, (*between, row.from_region, row.to_region))


def _once(draft: Draft, at: Path, first: dict[tuple[str, ...], int], key: tuple[str, ...]) -> None:
    """One price for one thing: which of two rows is meant, nobody can say."""
    assert isinstance(at[-1], int)
    index = first.setdefault(key, at[-1])
    if index != at[-1]:
        line = draft.mark(PRICES, at[0], index).line
        draft.error(PRICES, at, " ".join(key), (f"priced twice, first on line {line}", "remove one of the rows"))
