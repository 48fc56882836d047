"""The pure core: vocabulary, policy, snapshot, decision. No I/O, no clock, no randomness, no logs (import-linter checks)."""
