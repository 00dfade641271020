"""The mesh: every site tells all others what it wants, and who keeps copies of its records. Pure."""

from brokerweave.cooperation.mesh.strategy import Mesh

__all__ = ["Mesh"]
