"""Real brokers, balancers and nodes started and stopped on loopback: for the demo, tests and benchmarks."""
