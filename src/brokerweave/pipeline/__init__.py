"""The data pipeline: from the edge logs to bronze, silver and gold, on Spark."""
