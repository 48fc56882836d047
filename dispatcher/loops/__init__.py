"""The daemon's loops. They know ports and the core, never connectors; `app` wires them together."""
