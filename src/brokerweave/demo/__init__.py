"""`brokerweave demo`: several sites, different brokers, sensors, a crash, a summary."""
