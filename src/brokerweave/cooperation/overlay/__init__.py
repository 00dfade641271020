"""The overlay: topics have a coordinator and shadows on a ring of nodes (MQTT2EdgePeer), and relays share the
sending."""
