"""What brokerweave costs, measured on the machine at hand; RESULTS.md keeps what was found."""
