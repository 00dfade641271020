"""`format("brokerweave")`: the edge logs of nodes as a source of Spark."""
