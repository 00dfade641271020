"""A node's configuration: its keys, with unit, default, formula and cost.

Owns the names that users write (a contract) and what each means; docs/configuration.md is made from here.
Invariants: a `NodeConfig` that `load` returned is complete and checked, and never changes. Must not know: the
runtime that uses it, MQTT, what plug-ins do. The package itself reads files and flags into this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from brokerweave.config.common import LOG_FORMAT, LOG_LEVEL, OWN_TOPIC
from brokerweave.config.socket import default_admin_socket
from brokerweave.config.values import (
    ADDRESSES,
    BROKER,
    FILTERS,
    ID,
    LISTENING,
    NAMES,
    PATH,
    PLUGIN,
    REMOTE,
    SWITCH,
    TEXT,
    About,
    Address,
    BrokerAddress,
    about,
    choice,
    fraction,
    integer,
    pattern,
    seconds,
)
from brokerweave.plugin import OptionValue

KIB, MIB, GIB = 1024, 1024**2, 1024**3
DAY = 86_400.0
_LARGEST = 2**50


@dataclass(frozen=True, slots=True)
class NodeSection:
    """Who this node is, and what it stands between."""

    id: str = field(metadata=about(ID, "This node's name. Each node of a deployment needs its own."))
    listen: Address = field(metadata=about(LISTENING, "Where clients connect: MQTT over plain TCP."))
    broker: BrokerAddress = field(
        metadata=about(
            BROKER,
            "The local broker that this node stands in front of. By a Unix socket, where the broker listens "
            "at one (Mosquitto can), a message costs the broker about half.",
        )
    )
    link_listen: Address | None = field(
        default=None,
        metadata=about(
            LISTENING,
            "Where other nodes connect. Without it this node only calls its neighbours, never answers.",
        ),
    )
    health: Address | None = field(
        default=None,
        metadata=about(
            LISTENING,
            "Where a balancer asks by HTTP whether this node should be given clients: 200, or 503 and why "
            "not. By default nothing listens. It needs no password and tells nothing else.",
        ),
    )
    strategy: str = field(
        default="sf",
        metadata=about(
            PLUGIN,
            "How nodes cooperate. `sf` (subscription flooding) sends a publication only to where somebody "
            "subscribed; `pf` (publication flooding) sends each to every site; `mesh` lets sites stand in "
            "for each other, see docs/mesh.md; or a plug-in of yours. Nodes with different ones do not link.",
        ),
    )
    listeners: tuple[str, ...] = field(
        default=(),
        metadata=about(
            NAMES,
            "Other plug-ins to load, by name, in the order in which they are asked.",
            cost="some 10 µs for each packet that a listener asks to see",
        ),
    )
    data_dir: Path | None = field(
        default=None,
        metadata=about(
            PATH,
            "Where outboxes and sessions are kept over a restart. Without it a temporary folder is used, "
            "with a warning, and a restart loses pending messages.",
        ),
    )
    key_file: Path | None = field(
        default=None,
        metadata=about(
            PATH,
            "A file with the key that all nodes share. Without it anyone who reaches `link_listen` may link.",
        ),
    )
    admin_socket: Path | None = field(
        default=None,
        metadata=about(
            PATH, "The socket that `status` and `neighbours` talk to; by default one per user and id."
        ),
    )
    broker_username: str | None = field(
        default=None,
        metadata=about(
            TEXT,
            "The name with which the node itself logs in at its broker, to publish there what comes from "
            "other sites. A broker that asks its clients for a password needs it.",
        ),
    )
    broker_password_file: Path | None = field(
        default=None,
        metadata=about(PATH, "A file whose first line is the password that goes with `broker_username`."),
    )
    redirect: str | None = field(
        default=None,
        metadata=about(
            TEXT,
            "Where clients should go when this node is stopped: MQTT 5's Server Reference, for example "
            "`b.example.com:1883`. After SIGTERM, clients that connect are refused (0x9C with it; before "
            "MQTT 5 CONNACK 3). Those that are here hear 0x9C when they are sent away, and their wills are "
            "not published. Counted (`redirected_clients`).",
        ),
    )
    proxy_protocol: bool = field(
        default=False,
        metadata=about(
            SWITCH,
            "Begin every connection to the broker with a PROXY protocol (version 2) header, so that it sees "
            "the real client's address. The broker's listener must expect it.",
        ),
    )
    session_expiry: float = field(
        default=7 * DAY,
        metadata=about(
            seconds(0),
            "How long the interest of an absent MQTT 3.1.1 client with clean session false is kept. "
            "MQTT 5 clients say it themselves.",
            unit="seconds",
            cost="messages for clients that never return cross the links until then",
        ),
    )
    unknown_session: str = field(
        default="warn",
        metadata=about(
            choice("warn", "flood"),
            "What to do for a client that goes on with a session whose filters this node has never seen, "
            "because the node was put before a broker in use, or lost its `data_dir`. `warn` waits until "
            "the client subscribes again; `flood` takes everything that other sites publish until then.",
            cost="with `flood`, one such client draws all publications of all sites to this one",
        ),
    )
    delivery: str = field(
        default="local",
        metadata=about(
            choice("local", "cluster"),
            "When a client's QoS 1 or 2 publication is acknowledged: `local`, when the local broker has it; "
            "`cluster`, when every reachable interested node has it, too.",
            cost="`cluster`: at most Receive Maximum / round trip to the farthest interested site",
        ),
    )
    cluster_timeout: float = field(
        default=5.0,
        metadata=about(
            seconds(0.01),
            "How long `cluster` delivery waits for other nodes before it acknowledges all the same, counted; "
            "the message stays pending for them.",
            unit="seconds",
        ),
    )
    subscribe: str = field(
        default="barrier",
        metadata=about(
            choice("barrier", "async"),
            "`barrier`: SUBACK waits until the other nodes know the filter, so nothing published anywhere "
            "after it is missed; `async`: it does not wait.",
            cost="`barrier`: one round trip to the farthest node for a filter that none covers yet",
        ),
    )
    barrier_timeout: float = field(
        default=0.5,
        metadata=about(
            seconds(0.01),
            "How long `barrier` waits before SUBACK goes on all the same, counted.",
            unit="seconds",
        ),
    )
    log_level: str = field(default="warning", metadata=LOG_LEVEL)
    log_format: str = field(default="text", metadata=LOG_FORMAT)


@dataclass(frozen=True, slots=True)
class LimitsSection:
    """What one client, or all of them, may cost this node."""

    max_packet: int = field(
        default=16 * MIB,
        metadata=about(
            integer(64, 268_435_460),
            "The largest MQTT packet that passes; a larger one ends its connection.",
            unit="bytes",
            cost="a packet is held until it is whole, so each connection may hold this much, each way",
        ),
    )
    max_connections: int = field(
        default=9_500,
        metadata=about(
            integer(1, 1_000_000),
            "How many clients may be connected at once; one more is refused.",
            unit="clients",
            formula="at most half of what `ulimit -n` allows: each client needs two files",
        ),
    )
    client_queue: int = field(
        default=1 * MIB,
        metadata=about(
            integer(4 * KIB, _LARGEST),
            "What may wait for a client or its broker session that does not read, each way, before the other "
            "side is no longer read. One packet larger than this still passes, alone.",
            unit="bytes",
            cost="max_connections * client_queue * 2 in the worst case",
        ),
    )
    connect_timeout: float = field(
        default=10.0,
        metadata=about(
            seconds(0.1), "How long a new connection may take to send its CONNECT.", unit="seconds"
        ),
    )
    broker_timeout: float = field(
        default=5.0,
        metadata=about(
            seconds(0.1),
            "How long the broker may take to accept a connection, and then to answer CONNECT, before the "
            "client is told that it is away.",
            unit="seconds",
        ),
    )
    drain: float = field(
        default=5.0,
        metadata=about(
            seconds(0),
            "After SIGTERM: how long the node goes on sending pending messages before it ends.",
            unit="seconds",
        ),
    )
    drain_notice: float = field(
        default=0.0,
        metadata=about(
            seconds(0),
            "After SIGTERM: how long to go on serving clients while the health port says `draining`, before "
            "they are sent away. With [membership], controllers move their clients meanwhile. A second "
            "SIGTERM ends the wait.",
            unit="seconds",
            formula="more than the balancer takes to notice: its interval x the checks that must fail; some "
            "seconds for a controller",
        ),
    )


@dataclass(frozen=True, slots=True)
class LinksSection:
    """How this node talks to other nodes."""

    qos: int = field(
        default=1,
        metadata=about(
            integer(0, 2),
            "0 sends and forgets; 1 and 2 both keep messages until the neighbour has taken them, once.",
            cost="1 and 2 keep a copy in the outbox for one round trip",
        ),
    )
    sessions: int = field(
        default=2,
        metadata=about(
            integer(1, 64),
            "Lanes (connections) to each neighbour; nodes with different numbers do not link.",
            cost="each lane has its own outbox, with its own bounds",
        ),
    )
    order: str = field(
        default="topic",
        metadata=about(
            choice("topic", "round-robin"),
            "How a lane is chosen. `topic` keeps one publisher's messages on one topic in order; "
            "`round-robin` spreads a single busy topic over all lanes and keeps no order.",
        ),
    )
    cycles: str = field(
        default="stand-by",
        metadata=about(
            choice("stand-by", "none"),
            "`stand-by` finds cycles in the wiring: links that would close one carry nothing until another "
            "fails. `none` says that the wiring has no cycle; all nodes have to say the same.",
            cost="`stand-by`: some 200 bytes for each node in reach, and a packet on every link for each "
            "link that comes or goes anywhere",
        ),
    )
    ping_interval: float = field(
        default=2.0,
        metadata=about(
            seconds(0.05),
            "How often a quiet link is asked whether it lives.",
            unit="seconds",
            formula="a dead neighbour is noticed within 3 * ping_interval",
        ),
    )
    reconnect_min: float = field(
        default=0.2,
        metadata=about(
            seconds(0.01), "The first pause before a lost link is tried again; it doubles.", unit="seconds"
        ),
    )
    reconnect_max: float = field(
        default=10.0,
        metadata=about(
            seconds(0.01),
            "The longest such pause. Each is shortened at random, so that neighbours do not call in step.",
            unit="seconds",
        ),
    )
    outbox_memory: int = field(
        default=8 * MIB,
        metadata=about(
            integer(64 * KIB, _LARGEST),
            "Pending messages of a lane are kept in memory up to here; QoS 0 beyond it "
            "is dropped and counted.",
            unit="bytes per lane",
            cost="neighbours * sessions * outbox_memory in the worst case",
        ),
    )
    outbox_disk: int = field(
        default=1 * GIB,
        metadata=about(
            integer(0, _LARGEST),
            "QoS 1 and 2 beyond `outbox_memory` go to disk up to here; what does not fit is "
            "dropped and counted.",
            unit="bytes per lane",
            formula="bytes per second of QoS 1 and 2 on the lane * seconds that the neighbour may be away",
            cost="neighbours * sessions * outbox_disk in `data_dir` in the worst case",
        ),
    )
    waiting: int = field(
        default=16 * MIB,
        metadata=about(
            integer(64 * KIB, _LARGEST),
            "What the strategy does not know the way of yet waits up to here, QoS 1 and 2 also on disk. The "
            "same bound, once more, holds for what clients publish before a started node takes it. "
            "Beyond it QoS 0, and what came over a link, is dropped; clients that publish at QoS 1 or 2 are "
            "disconnected. Both are counted.",
            unit="bytes",
        ),
    )
    window: int = field(
        default=1_000_000,
        metadata=about(
            integer(1_000, 2**32),
            "How many of the newest messages of each node are known again when they are repeated. Older "
            "ones are refused and counted.",
            unit="messages per origin",
            formula="≥ sessions * (outbox_memory + outbox_disk) / mean bytes of a message, "
            "which is what can be pending at once",
        ),
    )
    forget_after: float = field(
        default=DAY,
        metadata=about(
            seconds(1),
            "How long a neighbour may be away before it is removed, and its pending messages "
            "dropped and counted.",
            unit="seconds",
        ),
    )
    idle_close: float = field(
        default=60.0,
        metadata=about(
            seconds(0.1),
            "With a strategy that opens links on demand: after how long a link closes over which nothing was "
            "sent, and for which nothing is pending at either end.",
            unit="seconds",
            cost="a shorter one saves connections; each link that is opened again costs a handshake",
        ),
    )
    max_links: int = field(
        default=256,
        metadata=about(
            integer(1, 1_000),
            "With a strategy that opens links on demand: members that are linked at once at most. For "
            "another the link that is idle longest is closed; where none is idle, messages wait in their "
            "outboxes, counted as `links_waited`.",
            cost="`sessions` connections for each",
        ),
    )
    tls_certificate: Path | None = field(
        default=None,
        metadata=about(
            PATH, "This node's certificate chain (PEM). With `tls_key` it turns TLS on for links."
        ),
    )
    tls_key: Path | None = field(
        default=None, metadata=about(PATH, "The private key (PEM) of `tls_certificate`.")
    )
    tls_ca: Path | None = field(
        default=None,
        metadata=about(
            PATH, "The authorities (PEM) that a neighbour's certificate must come from, on both sides."
        ),
    )


@dataclass(frozen=True, slots=True)
class RetainedSection:
    """How retained messages are kept the same at all sites."""

    tombstone_age: float = field(
        default=7 * DAY,
        metadata=about(
            seconds(60),
            "How long a deletion is remembered. A site that was away for longer may bring a deleted message "
            "back. Every node of a deployment should use the same.",
            unit="seconds",
            cost="some 300 bytes of memory for each topic deleted within that time",
        ),
    )
    max_bytes: int = field(
        default=256 * MIB,
        metadata=about(
            integer(0, _LARGEST),
            "What the index may take in `data_dir`. Beyond it only the versions of further messages are "
            "kept, counted: they still win or lose, but this node cannot repair them at other sites.",
            unit="bytes",
            cost="in memory, some 300 bytes for each topic",
        ),
    )
    max_skew: float = field(
        default=3_600.0,
        metadata=about(
            seconds(1),
            "How far ahead another node's clock may be; its messages are not retained beyond that, counted.",
            unit="seconds",
        ),
    )
    read_broker: str = field(
        default="first",
        metadata=about(
            choice("first", "always", "never"),
            "When to read the messages that the broker retains by itself, to tell other sites of them: at "
            "the `first` start in front of it, `always` at a start, or `never`.",
        ),
    )
    restore: str = field(
        default="missing",
        metadata=about(
            choice("missing", "never"),
            "After the broker, or this node, was away: read all topics back from the broker, and give it "
            "what it is `missing` or has wrong; or `never`.",
            cost="each topic is read once whenever the broker returns",
        ),
    )


@dataclass(frozen=True, slots=True)
class AclSection:
    """Which clients may send what to other sites."""

    file: Path | None = field(
        default=None,
        metadata=about(
            PATH,
            "An access list in the syntax of Mosquitto's `acl_file`; what it does not grant stays at this "
            "site. See docs/security.md. Without it, all that accepted clients publish may go to other "
            "sites.",
            cost="one look at the list for each new topic of a user (of a client, where a pattern has %c)",
        ),
    )


@dataclass(frozen=True, slots=True)
class EdgeLogSection:
    """The log on disk that taps record to. Without a `[[tap]]` there is none."""

    path: Path | None = field(
        default=None, metadata=about(PATH, "Its folder; by default `edge-log` in `data_dir`.")
    )
    fsync: str = field(
        default="interval",
        metadata=about(
            choice("always", "interval", "never"),
            "When rows are made to survive a power cut. All three lose, of QoS 1 and 2, nothing that was "
            "acknowledged when the process is killed. In a power cut `always` loses no more; `interval` may "
            "lose the last `fsync_interval` seconds; `never` what the kernel had not written, some 30 "
            "seconds, of which some may have been read already.",
            cost="`always`: the relay stops for each fsync, some milliseconds, and a client's "
            "acknowledgement waits for it",
        ),
    )
    fsync_interval: float = field(
        default=1.0,
        metadata=about(
            seconds(0.01, 3600),
            "Time between two fsyncs with `interval`; also what a reader waits for a row at most.",
            unit="seconds",
        ),
    )
    max_bytes: int = field(
        default=1 * GIB,
        metadata=about(
            integer(1 * MIB, _LARGEST),
            "The oldest rows go when the log is larger, whether they were read or not; what a named reader "
            "had not committed is counted.",
            unit="bytes",
            formula="bytes per second that taps record * seconds that readers may be away",
        ),
    )
    max_age: float = field(
        default=7 * DAY,
        metadata=about(seconds(60), "Rows that are older go, in the same way.", unit="seconds"),
    )
    min_free: int = field(
        default=64 * MIB,
        metadata=about(
            integer(0, _LARGEST),
            "Recording stops while the disk has less than this left, so that outboxes still have room. "
            "Relaying goes on.",
            unit="bytes",
        ),
    )


@dataclass(frozen=True, slots=True)
class FlightSection:
    """The edge log over Arrow Flight, for the pipeline: a process that the node starts. Needs pyarrow."""

    listen: Address | None = field(
        default=None,
        metadata=about(
            LISTENING,
            "Where readers connect; by convention port 8815. Without it nothing is served.",
            cost="a process of some 100 MiB; while readers drain the log, up to one core",
        ),
    )
    token_file: Path | None = field(
        default=None,
        metadata=about(
            PATH,
            "A file whose first line every call must show. The connection is not encrypted: beyond one "
            "machine let it go through a tunnel. Without it, whoever reaches `listen` may read the log.",
        ),
    )


@dataclass(frozen=True, slots=True)
class KafkaSection:
    """The edge log into Kafka, from a process that the node starts. Needs `brokerweave[kafka]`."""

    servers: tuple[Address, ...] = field(
        default=(),
        metadata=about(
            ADDRESSES,
            "Kafka's brokers to begin with. Without them nothing is fed. While none answers, rows wait in "
            "the edge log, as long as its bounds allow.",
            cost="a process of some 50 MiB; some 20 µs of CPU for each message",
        ),
    )
    topic: str = field(
        default="mqtt",
        metadata=about(
            pattern(
                r"(?:[A-Za-z0-9._-]|\{(?:node|[1-9][0-9]?)\})+",
                'a Kafka topic, for example "mqtt.{node}.{1}"',
            ),
            "The Kafka topic. `{node}` is this node's id, `{1}` the first level of the MQTT topic, `{2}` the "
            "second. It has to exist, unless Kafka makes topics by itself. A record's key is the MQTT topic.",
        ),
    )
    reader: str = field(
        default="kafka",
        metadata=about(ID, "The name under which the position in the edge log is kept."),
    )
    client_file: Path | None = field(
        default=None,
        metadata=about(
            PATH,
            "A file of `key=value` lines for Kafka's client, such as `security.protocol`, `sasl.username`, "
            "`sasl.password`, `message.max.bytes`: what must not stand in a command line.",
        ),
    )
    compression: str = field(
        default="lz4",
        metadata=about(choice("none", "gzip", "snappy", "lz4", "zstd"), "How record batches are compressed."),
    )


@dataclass(frozen=True, slots=True)
class TelemetrySection:
    """The node's own numbers as MQTT messages, for `brokerweave pipeline telemetry` and for anybody."""

    interval: float = field(
        default=0.0,
        metadata=about(
            seconds(0, 86_400),
            "Time between two messages; 0: none. They go through the node's own session to its broker, at "
            "QoS 0, and to other sites as any client's.",
            unit="seconds",
            cost="some 1.5 KB and less than a millisecond each",
        ),
    )
    topic: str = field(
        default="brokerweave/telemetry/{node}",
        metadata=about(
            OWN_TOPIC,
            "Their topic; `{node}` is this node's id.",
        ),
    )


@dataclass(frozen=True, slots=True)
class TapSection:
    """Which of its local clients' publications a node keeps in its edge log: one `[[tap]]` each."""

    topics: tuple[str, ...] = field(
        metadata=about(
            FILTERS,
            "Topic filters; what matches one of them is recorded, once, however many taps match.",
            cost="some microseconds for each publication, and its bytes on disk",
        )
    )
    exclude: tuple[str, ...] = field(
        default=(), metadata=about(FILTERS, "Topic filters of what this tap leaves out.")
    )
    sample: float = field(
        default=1.0,
        metadata=about(
            fraction("a number above 0, at most 1"),
            "The share of messages that is kept, chosen at random one by one. Of several taps that match, "
            "the largest share holds.",
        ),
    )


@dataclass(frozen=True, slots=True)
class MembershipSection:
    """Who is in the cluster: nodes probe each other and tell who came, left or died. Off without `bind`."""

    bind: Address | None = field(
        default=None,
        metadata=about(
            LISTENING,
            "Where this node is probed (UDP), and where whole member tables are exchanged (TCP, same port). "
            "Without it this node takes no part. Needs a `key_file`, here or in [node].",
            cost="with `lan`, some 600 bytes and 12 datagrams a second, however many members there are",
        ),
    )
    advertise: Address | None = field(
        default=None,
        metadata=about(
            REMOTE, "Where the others reach `bind`, if it listens on all addresses or behind a translation."
        ),
    )
    join: tuple[Address, ...] = field(
        default=(),
        metadata=about(
            ADDRESSES,
            "The `bind` of some members to begin with; one that answers is enough. They are called again "
            "until one does.",
        ),
    )
    key_file: Path | None = field(
        default=None,
        metadata=about(
            PATH, "A file with the key that all members share; by default the `key_file` of [node]."
        ),
    )
    preset: str = field(
        default="lan",
        metadata=about(
            choice("lan", "wan", "local"),
            "How quickly a death is noticed, and for how many datagrams: `lan` in about 2 s, `wan` in about "
            "15 s over slow lines, `local` in about 1 s between processes of one machine. All "
            "members need the same.",
            formula="see docs/membership.md",
        ),
    )


@dataclass(frozen=True, slots=True)
class MonitoringSection:
    """How near this site is to clients: it answers the pings of gateways. Off without `listen`."""

    listen: Address | None = field(
        default=None,
        metadata=about(
            LISTENING,
            "Where gateways ping this node (UDP). With [membership], controllers learn the address there.",
            cost="two datagrams of about 50 bytes for a ping, some microseconds of CPU",
        ),
    )
    sealed: bool = field(
        default=True,
        metadata=about(
            SWITCH,
            "Answer only what a holder of the key sent. `false`: anybody's pings, in EMMA's own packets; for "
            "loopback and tests.",
        ),
    )
    key_file: Path | None = field(
        default=None,
        metadata=about(
            PATH,
            "A file with the key that gateways and controllers share with this node; by default the "
            "`key_file` of [membership], or else of [node].",
        ),
    )


@dataclass(frozen=True, slots=True)
class NeighbourSection:
    """A node that this node calls: one `[[neighbour]]` each. It is enough if one of two names the other;
    if both do, either can bring the link back."""

    id: str = field(metadata=about(ID, "The other node's `id`."))
    address: Address = field(metadata=about(REMOTE, "The other node's `link_listen`, as seen from here."))

    def __str__(self) -> str:
        return f"{self.id}={self.address}"


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Everything that a node is told. `sources` names, for each key, the file or flag that set it."""

    node: NodeSection
    limits: LimitsSection = LimitsSection()
    links: LinksSection = LinksSection()
    retained: RetainedSection = RetainedSection()
    acl: AclSection = AclSection()
    edge_log: EdgeLogSection = EdgeLogSection()
    flight: FlightSection = FlightSection()
    kafka: KafkaSection = KafkaSection()
    telemetry: TelemetrySection = TelemetrySection()
    membership: MembershipSection = MembershipSection()
    monitoring: MonitoringSection = MonitoringSection()
    taps: tuple[TapSection, ...] = ()
    neighbours: tuple[NeighbourSection, ...] = ()
    options: Mapping[str, Mapping[str, OptionValue]] = field(default_factory=dict)
    """Of the strategy and the listeners in use, by the plug-in's name."""
    path: Path | None = field(default=None, compare=False)
    flags: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def admin_socket(self) -> Path:
        """Where this node answers `status` and `neighbours`. Raises `ConfigError`."""
        return self.node.admin_socket or default_admin_socket(self.node.id)

    @property
    def monitoring_key_file(self) -> Path | None:
        """None where anybody may ping."""
        if not self.monitoring.sealed:
            return None
        return self.monitoring.key_file or self.membership.key_file or self.node.key_file


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the configuration, as the loader, the command line and the reference page see it."""

    section: str
    name: str
    about: About
    default: object
    required: bool

    @property
    def dotted(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def flag(self) -> str:
        """Keys of the first section have the plain name, others their section's before it, some a short
        one."""
        if self.dotted in _SHORT_FLAGS:
            return _SHORT_FLAGS[self.dotted]
        words = self.name if self.section in _PLAIN_FLAGS else f"{self.section}_{self.name}"
        return "--" + words.replace("_", "-")


_SHORT_FLAGS = {"membership.bind": "--membership", "membership.join": "--join", "policy.name": "--policy"}
_PLAIN_FLAGS = ("node", "controller", "gateway")

SECTIONS: Mapping[str, type[Any]] = MappingProxyType(
    {
        "node": NodeSection,
        "limits": LimitsSection,
        "links": LinksSection,
        "retained": RetainedSection,
        "acl": AclSection,
        "edge_log": EdgeLogSection,
        "flight": FlightSection,
        "kafka": KafkaSection,
        "telemetry": TelemetrySection,
        "membership": MembershipSection,
        "monitoring": MonitoringSection,
    }
)


def keys_of(section: str, shape: type[Any]) -> Iterator[Key]:
    """The keys that a section's dataclass declares, in its order."""
    each: Field[Any]
    for each in fields(shape):
        required = each.default is MISSING
        yield Key(section, each.name, each.metadata["about"], None if required else each.default, required)


KEYS: Mapping[str, Key] = MappingProxyType(
    {key.dotted: key for section, shape in SECTIONS.items() for key in keys_of(section, shape)}
)
