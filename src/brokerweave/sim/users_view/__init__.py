"""The checker of mesh runs: it sees what users see, and the faults, and nothing inside a node."""
