"""The command line: asks the daemon's API, or reads its records while it is down. Manual: docs/cli.md."""
