"""What the session's local fleet consists of: the example blueprint's hub and three of its clusters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from demo.fleets import LOCAL_WORKERS, fleet_objects
from dispatcher.config import load_blueprint
from dispatcher.runtime import SystemClock
from tests.fleet import FleetCluster

CONFIG = Path(__file__).resolve().parents[2] / "config"
WORKERS = LOCAL_WORKERS


def example_fleet() -> tuple[list[Mapping[str, Any]], list[FleetCluster]]:
    """Rendered objects for `LocalFleet.start`."""
    return fleet_objects(load_blueprint(CONFIG, SystemClock().now()))
