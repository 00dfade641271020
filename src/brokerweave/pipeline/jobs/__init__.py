"""What the pipeline runs: bronze, silver and gold."""
