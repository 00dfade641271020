"""The benchmark system: load, indexes, the search for a limit, patterns of cooperating brokers, reports."""
