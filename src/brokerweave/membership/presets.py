"""How quick and how costly membership is: every number with its unit, formula and cost, and three sets of
them.

Owns the numbers and what follows from them and the number of members. Must not know: any member.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log, log10

MOST_DATAGRAM = 1400
"""Bytes: what fits into one Ethernet frame, with room for IPv6 and a tunnel, so that none is cut in two."""
MOST_META = 128
"""Bytes of an application's metadata for one member: it travels in datagrams beside everything else."""


@dataclass(frozen=True, slots=True)
class Preset:
    """Times are seconds. n: members, this one included."""

    probe_interval: float
    """One member is probed in each. A crash is first noticed after this long on average, whatever n is: n
    members probe, each one of n. Cost: 2 datagrams of about 50 bytes for each node and interval."""
    probe_timeout: float
    """After this long without an answer a probe is repeated, and after as long again others are asked to
    probe, too. Formula: at least 3 x the usual round trip, and at most a third of `probe_interval`. Cost: a
    short one probes and asks in vain."""
    relays: int
    """Members that are asked to probe when a probe was not answered (SWIM's k). A living member is suspected
    in vain with (1 - (1 - loss)^2)^3 x (1 - (1 - loss)^4)^relays, since the probe itself is repeated twice.
    Cost: 4 datagrams for each, and only after two probes in vain."""
    suspicion_mult: float
    """How long a suspect may take to object when others suspect it as well. Formula: suspicion_mult x
    probe_interval x max(1, log10 n). Cost: every death is known that much later; too short a time, and a
    member that was only paused is declared dead."""
    suspicion_max_mult: float
    """As many times longer a suspect has if nobody else suspects it (Lifeguard's beta). Cost: a death in a
    cluster whose other members do not reach the suspect either is known later."""
    confirmations: int
    """Members besides the first that have to suspect as well until the time is the shortest (Lifeguard's K);
    fewer if there are not so many. Cost: none; more of them are safer and slower."""
    gossip_interval: float
    """News is passed on this often, while there is any. Formula: all have it after about gossip_interval x
    log(n) / log(1 + gossip_fanout). Cost: `gossip_fanout` datagrams, and nothing when there is no news."""
    gossip_fanout: int
    """Members that are told in each `gossip_interval`."""
    retransmit_mult: float
    """How often each member passes one piece of news on. Formula: retransmit_mult x ceil(ln(n + 1)); one
    member misses it with about n^-retransmit_mult. Cost: as many times its 20 to 200 bytes for each node."""
    push_pull_interval: float
    """A whole table is exchanged over TCP with one other member this often: it repairs what gossip missed.
    Formula: stretched by log2(n / 32) above 32 members. Cost: some 60 bytes for each member, both ways."""
    reconnect_interval: float
    """A dead member is called this often by about one of the living, so that a split heals. Cost: one TCP
    connection attempt for each dead member and interval, in the whole cluster."""
    forget_after: float
    """Dead and departed members are remembered this long. Cost: some 500 bytes for each."""
    health_max: int
    """How much slower a node that is slow itself probes at most: (1 + health_max) x (Lifeguard's S). Cost:
    the crash that only this node could notice is noticed that much later."""

    def suspicion_times(self, members: int) -> tuple[float, float]:
        """The shortest and the longest suspicion."""
        shortest = self.suspicion_mult * self.probe_interval * max(1.0, log10(max(members, 1)))
        return shortest, shortest * self.suspicion_max_mult

    def transmissions(self, members: int) -> int:
        """How often one node passes a piece of news on (SWIM 4.1: lambda log n)."""
        return max(1, ceil(self.retransmit_mult * ceil(log(members + 1))))

    def push_pull_every(self, members: int) -> float:
        return self.push_pull_interval * (1 + max(0, ceil(log(max(members, 32) / 32, 2))))


LAN = Preset(
    probe_interval=0.2,
    probe_timeout=0.06,
    relays=3,
    suspicion_mult=3,
    suspicion_max_mult=4,
    confirmations=2,
    gossip_interval=0.1,
    gossip_fanout=3,
    retransmit_mult=3,
    push_pull_interval=30.0,
    reconnect_interval=2.0,
    forget_after=3600.0,
    health_max=8,
)
WAN = Preset(
    probe_interval=2.0,
    probe_timeout=0.5,
    relays=3,
    suspicion_mult=4,
    suspicion_max_mult=6,
    confirmations=3,
    gossip_interval=0.4,
    gossip_fanout=4,
    retransmit_mult=3,
    push_pull_interval=60.0,
    reconnect_interval=10.0,
    forget_after=24 * 3600.0,
    health_max=8,
)
LOCAL = Preset(
    probe_interval=0.1,
    probe_timeout=0.03,
    relays=2,
    suspicion_mult=5,
    suspicion_max_mult=4,
    confirmations=2,
    gossip_interval=0.05,
    gossip_fanout=3,
    retransmit_mult=3,
    push_pull_interval=10.0,
    reconnect_interval=1.0,
    forget_after=600.0,
    health_max=8,
)
PRESETS = {"lan": LAN, "wan": WAN, "local": LOCAL}
