"""What runs between two nodes, and from a node into its broker: order, acknowledgement, once. Pure."""
