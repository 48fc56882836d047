"""Words for what stands against a cluster because of a persistent volume claim."""

from __future__ import annotations

from dispatcher.core.decision import Detail


def claim_unbound_text(detail: Detail) -> str:
    """`expected`: the data sets that it holds here and there, where the job does not say which it means."""
    if detail.expected:
        sets = ", ".join(detail.expected)
        return (
            f"mounts claim {detail.subject}, which is not the same everywhere: name one of {sets} in the job's datasets"
        )
    return f"mounts claim {detail.subject}, and nobody says what that holds where (add it to claims in data.yaml)"


def claim_elsewhere_text(detail: Detail) -> str:
    """`expected`: the data set that is meant; `seen`: what the claim holds there."""
    if not detail.seen:
        return f"would mount claim {detail.subject}, and nobody says that it is there ({detail.line})"
    wanted = f" and not {detail.expected[0]}" if detail.expected else ""
    return f"would mount claim {detail.subject}, which holds {detail.seen[0]} there{wanted} ({detail.line})"
