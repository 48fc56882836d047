"""Words for pods that must lie together, and for flavors that know no such places. A part of `explain`."""

from __future__ import annotations

from dispatcher.core.decision import Detail, DomainDetail
from dispatcher.core.units import counted


def apart_text(detail: Detail, found: DomainDetail) -> str:
    """The level, and how many of the pods the largest domain takes: now, or ever where that is why it never fits."""
    subject, fits = detail.subject, f"fits {found.fits} of {counted(found.pods, 'pod')}"
    if found.beside:
        subject = f"{subject} with {found.beside}"
    if found.slice_size:
        subject = f"{subject} in slices of {found.slice_size} that share a domain of {found.slice_level}"
    if not found.level:
        return f"has too few whole domains for {subject} ({fits})"
    if not found.largest:
        return f"has no node of {detail.flavor} in a domain of {found.level}, which {detail.subject} requires"
    return f"has no one domain of {found.level} for {subject} (the largest, {'/'.join(found.largest)}, {fits})"


def mismatch_text(detail: Detail) -> str:
    """What is asked of topology-aware scheduling, and what the flavor has."""
    if detail.holder == "none":
        return f"lays pods of {detail.flavor} out by topology, and {detail.subject} does not ask for that"
    asked = ", ".join(detail.expected) or "topology-aware scheduling"
    there = f"the levels {', '.join(detail.seen)}" if detail.seen else "no topology"
    return f"cannot lay {detail.subject} out by topology (asked {asked}, {detail.flavor} has {there})"
