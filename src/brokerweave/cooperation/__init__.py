"""Cooperation algorithms and the API they, and any other plug-in, are written against. Pure."""
