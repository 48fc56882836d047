"""Laws of what runs are taken to last."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.history import LEAST, Ended, History, Kind
from dispatcher.core.ids import QueueName, WorkloadUid
from dispatcher.core.workload import WorkloadClass
from tests.core_builders import NOW
from tests.examples import examples

KINDS = [
    (QueueName("training"), WorkloadClass.TRAINING),
    (QueueName("training"), WorkloadClass.EVALUATION),
    (QueueName("rollouts"), WorkloadClass.TRAINING),
]
runs = st.lists(
    st.builds(
        lambda kind, after_s, uid, duration_s: (
            kind,
            Ended(NOW + timedelta(seconds=after_s), WorkloadUid(f"uid-{uid}"), duration_s),
        ),
        st.sampled_from(KINDS),
        st.integers(0, 3),
        st.integers(0, 10**6),
        st.integers(-1, 10**6),
    ),
    max_size=120,
)


def told(each: list[tuple[Kind, Ended]]) -> History:
    found = History()
    for kind, run in each:
        found.add(kind, run)
    return found


@examples(200)
@given(runs, st.randoms(use_true_random=False))
def test_the_order_in_which_ends_are_told_changes_nothing(each: list[tuple[Kind, Ended]], random: object) -> None:
    """Many end at the same instant."""
    other = list(each)
    random.shuffle(other)  # type: ignore[attr-defined]
    assert list(told(each).usual().items()) == list(told(other).usual().items())


@examples(200)
@given(runs)
def test_what_is_known_is_never_nothing(each: list[tuple[Kind, Ended]]) -> None:
    """A figure is above zero, stands on enough runs, and is not below the shortest or far above the longest of them."""
    usual = told(each).usual()
    for kind, found in usual.items():
        known = [run.duration_s for of, run in each if of == kind and run.duration_s > 0]
        assert found.runs >= LEAST
        assert min(known) <= found.duration_s < max(known) + 3600
    for kind in KINDS:
        if len([run for of, run in each if of == kind and run.duration_s > 0]) < LEAST:
            assert kind not in usual
