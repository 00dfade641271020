"""The edge log into Kafka, from a process of its own."""
