"""The overlay: nodes on a ring, which keep subscriber lists for each other and share the sending. Pure."""
