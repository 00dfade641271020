"""brokerweave makes any MQTT brokers act as one."""

__version__ = "0.1.0"
