"""Every error brokerweave raises on purpose.

The class says whose fault it is; `transient` says whether trying again can help. Exceptions of other
libraries are translated into these at the border (runtime, cli) and nowhere else.
"""


class BrokerweaveError(Exception):
    """Base of all. Its text is one line that tells a user what to do."""

    transient = False


class LocalProtocolError(BrokerweaveError):
    """Our side asked for something that MQTT forbids: a bug in the caller, nothing was sent."""


class RemoteProtocolError(BrokerweaveError):
    """The peer broke the protocol. Only its connection is to be closed, with `reason_code` (MQTT 5)."""

    def __init__(self, message: str, reason_code: int = 0x81) -> None:
        super().__init__(message)
        self.reason_code = reason_code


class Refused(RemoteProtocolError):
    """The peer asks for more than this side gives, whatever the protocol says: too large, too much."""


class ConfigError(BrokerweaveError):
    """A configuration or command-line value cannot be used."""


class Unavailable(BrokerweaveError):
    """Something outside (broker, node, disk) does not answer now; the same call may work later."""

    transient = True
