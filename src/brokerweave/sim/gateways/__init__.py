"""Gateways and their controller in virtual time: real tunnels, core and agents, with model clients."""
