"""The pure core: vocabulary, policy, snapshot, decision. No I/O, clock, randomness or logs (checked)."""
