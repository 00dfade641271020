"""The asyncio shells: sockets, clocks, files and signals around the pure layers."""
