"""Clients' records, each at one home, with copies at other sites."""
