"""One client of a gateway: what it wants, what is in flight, and its moves between sites, without I/O."""
