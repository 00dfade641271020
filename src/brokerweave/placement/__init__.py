"""Which site serves which client: monitoring, the graph of gateways and sites, policies and paced moves."""
