"""The network as the controller sees it: gateways with their clients, sites, and the measured edges between.

EMMA's N = (B, C, E) (EMMA IV-A c), where a gateway has clients of its own. Owns who is where. Invariants: a
client has one gateway; what is counted for a site is what its clients add up to. Policies read it and never
change it: they are told `Loads`, a tally that follows the moves as they are decided. Must not know: how the
network was measured, how moves are carried out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import inf

from brokerweave.placement.quality import Edge, Sample

Address = tuple[str, int]


class Load(Enum):
    """What of a site is balanced."""

    CONNECTIONS = "connections"
    MESSAGES = "messages"
    CPU = "cpu"


class Leaving(Enum):
    """Why a site takes no clients, and how soon those it has go."""

    NO = ""
    DRAINING = "draining"
    EVACUATED = "evacuated"


@dataclass(slots=True)
class GraphSite:
    name: str
    clients: Address
    """Where clients connect."""
    monitor: Address | None = None
    """Where it answers pings."""
    weight: float = 1.0
    """Of two equally near sites the one with twice the weight gets twice the load."""
    leaving: Leaving = Leaving.NO
    present: bool = True
    """It has not died or left; one that did is kept while clients are said to be there."""
    cpu: float = 0.0
    """The share of one CPU that its node uses."""

    @property
    def open(self) -> bool:
        """Whether clients may be sent there."""
        return self.present and self.leaving is Leaving.NO


@dataclass(slots=True)
class GraphClient:
    id: str
    gateway: str
    site: str
    rate: float = 0.0
    """Messages a second, both ways."""
    moved_at: float = float("-inf")
    """When it was last moved by the controller."""
    pinned: str | None = None


@dataclass(slots=True)
class GraphGateway:
    id: str
    edges: dict[str, Edge] = field(default_factory=dict)
    clients: dict[str, GraphClient] = field(default_factory=dict)
    heard_at: float = 0.0
    follows: str = ""
    """The controller whose orders it takes."""


class Loads:
    """How much each site has: a copy that a decision may change."""

    __slots__ = ("_amounts", "_each", "_load", "_weights")

    def __init__(self, graph: Graph, load: Load) -> None:
        counts = dict.fromkeys(graph.sites, 0)
        rates = dict.fromkeys(graph.sites, 0.0)
        for gateway in graph.gateways.values():
            for client in gateway.clients.values():
                counts[client.site] = counts.get(client.site, 0) + 1
                rates[client.site] = rates.get(client.site, 0.0) + client.rate
        cpu = {name: site.cpu for name, site in graph.sites.items()}
        amounts: dict[Load, Mapping[str, float]] = {
            Load.CONNECTIONS: counts,
            Load.MESSAGES: rates,
            Load.CPU: cpu,
        }
        self._load = load
        self._amounts = dict(amounts[load])
        self._weights = {name: site.weight for name, site in graph.sites.items()}
        self._each = {name: used / max(counts[name], 1) for name, used in cpu.items()}

    def amount(self, site: str) -> float:
        return self._amounts.get(site, 0.0)

    def share(self, site: str) -> float:
        """The amount for each unit of weight: what is to be equal at sites that are equally near."""
        return self.amount(site) / self._weights.get(site, 1.0)

    def size(self, client: GraphClient) -> float:
        """What this client adds to its site."""
        if self._load is Load.CONNECTIONS:
            return 1.0
        return client.rate if self._load is Load.MESSAGES else self._each.get(client.site, 0.0)

    def share_with(self, site: str, size: float) -> float:
        """The share that a site would have with this much more."""
        return (self.amount(site) + size) / self._weights.get(site, 1.0)

    def move(self, client: GraphClient, target: str) -> None:
        size = self.size(client)
        self._amounts[client.site] = self.amount(client.site) - size
        self._amounts[target] = self.amount(target) + size

    def place(self, target: str) -> None:
        """A new client goes there: of what load is not known yet."""
        if self._load is Load.CONNECTIONS:
            self._amounts[target] = self.amount(target) + 1


class Graph:
    def __init__(self) -> None:
        self.sites: dict[str, GraphSite] = {}
        self.gateways: dict[str, GraphGateway] = {}
        self.now = 0.0
        """Of the decision; samples are compared with it."""

    def gateway(self, gateway: str) -> GraphGateway:
        """The one with this id; a new one if it was not known."""
        found = self.gateways.get(gateway)
        if found is None:
            found = self.gateways[gateway] = GraphGateway(gateway)
        return found

    def measured(self, gateway: str, site: str, sample: Sample) -> None:
        edges = self.gateway(gateway).edges
        if site not in edges:
            edges[site] = Edge()
        edges[site].add(sample)

    def forget_site(self, name: str) -> None:
        self.sites.pop(name, None)
        for gateway in self.gateways.values():
            gateway.edges.pop(name, None)

    def open_edges(self, gateway: GraphGateway) -> dict[str, Edge]:
        """The measured ways to sites that take clients and answered at least once."""
        sites = self.sites
        return {
            name: edge
            for name, edge in gateway.edges.items()
            if edge.mean < inf and name in sites and sites[name].open
        }

    def clients_at(self, site: str) -> list[GraphClient]:
        everybody = (client for gateway in self.gateways.values() for client in gateway.clients.values())
        return [client for client in everybody if client.site == site]

    def count(self) -> Counter[str]:
        """Clients at each site."""
        everybody = (gateway.clients.values() for gateway in self.gateways.values())
        return Counter(client.site for clients in everybody for client in clients)

    def find(self, client: str) -> list[GraphClient]:
        """At most one, unless two gateways have clients of the same id."""
        found = (gateway.clients.get(client) for gateway in self.gateways.values())
        return [each for each in found if each is not None]
