"""Real fleets to try Entrepot on: `LocalFleet` runs a hub and workers as plain processes on loopback."""

from tests.fleet.fleet import Endpoint, LocalFleet
from tests.fleet.manifests import FleetCluster, FleetNode
from tests.fleet.processes import FleetError

__all__ = ["Endpoint", "FleetCluster", "FleetError", "FleetNode", "LocalFleet"]
