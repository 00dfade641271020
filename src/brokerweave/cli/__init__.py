"""The `brokerweave` command."""
