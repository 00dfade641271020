"""The cooperation strategies that come with brokerweave: pf, sf and the mesh. Pure."""
