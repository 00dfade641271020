"""Clients that move between sites: EMMA's eight events, and a storm of moves, in emulated regions."""
