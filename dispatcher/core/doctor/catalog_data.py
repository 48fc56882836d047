"""The catalogue's third part: the endpoint that data sets come from, and the stores that replicas are looked for in."""

from __future__ import annotations

from dispatcher.core.doctor.codes import Code, Entry, Group, Severity

_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE
_FROM = "docs/data.md"

DATA_ENTRIES: dict[Code, Entry] = {
    Code.DATA_NOT_ASKED: Entry(
        Group.DATA,
        _N,
        "whether the catalog and the stores answer is not known",
        "only the daemon asks them, from where it runs and with its keys; nothing was concluded",
        _FROM,
        "run the doctor with --server http://HOST:PORT of the daemon (ENTREPOT_SERVER)",
    ),
    Code.DATA_KEY_MISSING: Entry(
        Group.DATA,
        _E,
        "the Secret with the catalog's token or a store's key is not there, or lacks its key",
        "the endpoint refuses us and its data sets become unknown; replicas in the store are never confirmed",
        _FROM,
        "kubectl -n NAMESPACE create secret generic NAME --from-file=KEY=FILE",
    ),
    Code.DATA_KEY_DENIED: Entry(
        Group.DATA,
        _E,
        "the account may not read the catalog's token or a store's key",
        "as if it were not there",
        f"{_FROM}, ADR 8",
        "add ../../data-access to `components` of your overlay of deploy/hub, with the Secret's name in its Role",
    ),
    Code.CATALOG_FAILS: Entry(
        Group.DATA,
        _W,
        "the catalog's endpoint gives no good answer",
        "its last good answer counts until it is older than max_age; then nothing starts on its data sets",
        _FROM,
        "mend what the daemon says of it; its log lines catalog_unreachable and catalog_refused have all of it",
    ),
    Code.CATALOG_OLD: Entry(
        Group.DATA,
        _E,
        "the catalog's last good answer is older than max_age, or there was none since the start",
        "its data sets are not known: jobs that name one wait, and nothing starts on them",
        _FROM,
        "mend the endpoint, or put data sets that are needed now into data.yaml",
    ),
    Code.STORE_UNSEEN: Entry(
        Group.DATA,
        _W,
        "replicas in a store cannot be confirmed",
        "they count as declared: work may be sent to data that is not there",
        _FROM,
        "mend what the daemon says of it: bucket and endpoint in data.yaml, the key, the network policy",
    ),
    Code.REPLICA_NOT_LOOKED: Entry(
        Group.DATA,
        _W,
        "replicas were not looked for lately",
        "what was seen is too old to count, so they count as declared",
        _FROM,
        "entrepot data names them; look at loop `replicas` in /healthz, or lengthen `every` where there are many",
    ),
}
