"""The embedded fleet: an in-memory hub with workers that obeys the Kueue contract, behind the core's ports."""

from connectors.embedded.clock import FastClock, ManualClock
from connectors.embedded.fleet import EmbeddedFleet, Options, WorkerSpec
from connectors.embedded.manifests import NodeSpec
from connectors.embedded.multikueue import Settings

__all__ = ["EmbeddedFleet", "FastClock", "ManualClock", "NodeSpec", "Options", "Settings", "WorkerSpec"]
