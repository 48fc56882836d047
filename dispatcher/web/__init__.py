"""The read-only HTTP API: what the command line and dashboards ask (docs/adr/0004-api-framework.md)."""
