"""The benchmark system (ILDM 5): loads brokers and nodes, searches limits, computes indexes, reports."""
