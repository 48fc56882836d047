"""Words for how far a cluster is from its users. A part of `explain`."""

from __future__ import annotations

from dispatcher.core.decision import Detail


def too_far_text(detail: Detail) -> str:
    """Both values: what was measured and what is allowed (FR-CLI-02)."""
    there = ", ".join(detail.expected)
    return (
        f"is too far from users in {detail.subject} (round trip to {there} {detail.found} ms, at most {detail.needed} "
        f"ms; {detail.holder})"
    )


def latency_unknown_text(detail: Detail) -> str:
    there = ", ".join(detail.expected)
    return f"has no known round trip to users in {detail.subject} (fleet.yaml: round_trips between that and {there})"
