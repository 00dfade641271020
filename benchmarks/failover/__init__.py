"""`python -m benchmarks.failover`: what clients miss, and for how long, when sites are killed under load."""
