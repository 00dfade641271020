"""One client's pair of sessions through a node: what it sends, is granted and leaves behind. Pure."""
