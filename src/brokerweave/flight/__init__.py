"""The edge log over Arrow Flight, served from a process of its own."""
