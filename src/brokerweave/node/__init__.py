"""One node's decisions: pairs, interest, routes, links and injectors put together, without I/O. Pure."""
