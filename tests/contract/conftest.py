"""The fleets that the contract suite runs on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from tests.contract.embedded import embedded_fleet
from tests.contract.harness import Bed, FleetHarness

_numbers = itertools.count(1)


@pytest.fixture(params=["embedded", pytest.param("local", marks=pytest.mark.local)])
def open_fleet(request: pytest.FixtureRequest) -> Callable[..., AbstractAsyncContextManager[FleetHarness]]:
    """`async with open_fleet(quota=16) as harness`: a bed like that, on the embedded fleet or on real clusters."""
    if request.param == "local":
        from tests.contract.local import local_fleet_with

        shared = request.getfixturevalue("local_fleet")
        return lambda **shape: local_fleet_with(shared, _bed(shape))
    return lambda **shape: embedded_fleet(_bed(shape))


def _bed(shape: dict[str, Any]) -> Bed:
    return Bed(f"contract-{next(_numbers)}", **shape)
