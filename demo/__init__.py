"""`make demo`: the daemon on a fleet of your choice, with about twenty jobs of all seven workload classes."""
