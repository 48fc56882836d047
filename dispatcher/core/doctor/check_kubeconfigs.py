"""Kubeconfigs of workers: what Kueue and we refuse, what has expired or soon will, what their accounts lack."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from dispatcher.core.doctor.check_access import rules_text
from dispatcher.core.doctor.facts import HUB, FleetFacts, KubeconfigFacts, KubeconfigFault
from dispatcher.core.doctor.findings import Code, Finding, Where, found

EXPIRY_NOTICE = timedelta(days=7)

_CODES = {
    KubeconfigFault.NO_SECRET: Code.SECRET_MISSING,
    KubeconfigFault.NO_KEY: Code.SECRET_NO_KEY,
    KubeconfigFault.INSECURE: Code.KUBECONFIG_INSECURE,
    KubeconfigFault.NOT_HTTPS: Code.KUBECONFIG_INSECURE,
    KubeconfigFault.BAD_HOST: Code.KUBECONFIG_BAD_HOST,
    KubeconfigFault.CA_FILE: Code.KUBECONFIG_REFUSED,
    KubeconfigFault.CREDENTIAL_FILE: Code.KUBECONFIG_REFUSED,
    KubeconfigFault.EXEC: Code.KUBECONFIG_REFUSED,
    KubeconfigFault.AUTH_PROVIDER: Code.KUBECONFIG_REFUSED,
    KubeconfigFault.BASIC_AUTH: Code.KUBECONFIG_REFUSED,
}


def check_kubeconfigs(facts: FleetFacts) -> Iterator[Finding]:
    for kubeconfig in facts.hub.kubeconfigs:
        where = where_of(kubeconfig)
        named = f"{kubeconfig.holder}'s access to {kubeconfig.cluster}"
        for fault, detail in kubeconfig.faults:
            code = _CODES.get(fault, Code.KUBECONFIG_MALFORMED)
            yield found(code, where, f"{named}: {detail or fault}", _fix(kubeconfig))
        yield from _expiry(kubeconfig, where, named, facts.seen_at)
        if kubeconfig.denied:
            lacking = ", ".join(verb.text() for verb in kubeconfig.denied)
            fix = f"add to its ClusterRole on {kubeconfig.cluster}: {rules_text(kubeconfig.denied)}"
            yield found(Code.KUBECONFIG_RBAC, where, f"{named} may not {lacking}", fix)


def where_of(kubeconfig: KubeconfigFacts) -> Where:
    """The Secret, or the file."""
    namespace, slash, name = kubeconfig.where.partition("/")
    if slash and namespace:
        return Where(HUB, "Secret", name, namespace)
    return Where(place=kubeconfig.where)


def _fix(kubeconfig: KubeconfigFacts) -> str:
    namespace, slash, name = kubeconfig.where.partition("/")
    if not slash or not namespace:
        return f"correct {kubeconfig.where}"
    return (
        "write a kubeconfig with https, certificate-authority-data and an inline token to FILE, then: kubectl "
        f"-n {namespace} create secret generic {name} --from-file={kubeconfig.key}=FILE --dry-run=client -o yaml "
        "| kubectl apply -f -"
    )


def _expiry(kubeconfig: KubeconfigFacts, where: Where, named: str, now: datetime) -> Iterator[Finding]:
    parts = (
        ("token", kubeconfig.token_ends),
        ("client certificate", kubeconfig.certificate_ends),
        ("certificate authority", kubeconfig.ca_ends),
    )
    for part, ends in parts:
        if ends is None or ends - now > EXPIRY_NOTICE:
            continue
        at = ends.strftime("%Y-%m-%d %H:%M UTC")
        if ends <= now:
            yield found(Code.KUBECONFIG_EXPIRED, where, f"{named}: its {part} ended at {at}")
        else:
            yield found(Code.KUBECONFIG_EXPIRING, where, f"{named}: its {part} ends at {at}")
