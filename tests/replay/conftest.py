"""Fixtures of the replay tests."""

from tests.loops.conftest import bench

__all__ = ["bench"]
