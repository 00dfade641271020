"""MQTT 3.1, 3.1.1 and 5 as data: packets, their bytes, frames in a stream, topics and filters. Pure."""
