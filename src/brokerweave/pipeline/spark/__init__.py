"""Spark itself: what it needs to be there, how its session is opened, and what its failures mean."""
