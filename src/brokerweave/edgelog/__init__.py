"""The edge log: what a node's taps record, in checksummed segments on disk, read by position."""
