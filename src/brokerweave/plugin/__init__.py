"""The public page for strategies and listeners: everything that an author imports of ours.

Owns which names are public. `API_VERSION` grows when a plug-in would have to be changed. Must not know: how a
node works, any plug-in.
"""

from brokerweave.errors import LocalProtocolError, RemoteProtocolError
from brokerweave.mqtt.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    Subscription,
    Unsubscribe,
    Will,
)
from brokerweave.mqtt.properties import Properties, Property, user_properties
from brokerweave.mqtt.topics import matches
from brokerweave.plugin.listener import (
    Listener,
    ListenerContext,
    NodeState,
    Reject,
    Session,
    SessionManager,
    SessionState,
    Side,
)
from brokerweave.plugin.options import Option, OptionValue, option, options_of
from brokerweave.plugin.sites import SiteBook, SiteEvents
from brokerweave.plugin.strategy import (
    NOT_YET,
    Context,
    Cut,
    Hop,
    Linking,
    NetworkShape,
    Route,
    Strategy,
    Timer,
    TrafficUsage,
    Traits,
)

API_VERSION = 1

__all__ = [
    "API_VERSION",
    "NOT_YET",
    "ConnAck",
    "Connect",
    "Context",
    "Cut",
    "Disconnect",
    "Hop",
    "Linking",
    "Listener",
    "ListenerContext",
    "LocalProtocolError",
    "NodeState",
    "Option",
    "OptionValue",
    "Packet",
    "PacketType",
    "Properties",
    "Property",
    "PubAck",
    "Publish",
    "Reject",
    "RemoteProtocolError",
    "Route",
    "Session",
    "SessionManager",
    "SessionState",
    "Side",
    "SiteBook",
    "SiteEvents",
    "Strategy",
    "SubAck",
    "Subscribe",
    "Subscription",
    "Timer",
    "TrafficUsage",
    "Traits",
    "Unsubscribe",
    "Will",
    "NetworkShape",
    "matches",
    "option",
    "options_of",
    "user_properties",
]
