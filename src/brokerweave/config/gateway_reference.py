"""Prints docs/gateway.md, made from the keys: `python -m brokerweave.config.gateway_reference`.

Owns the page's opening only; a test compares the page with the keys.
"""

from __future__ import annotations

from brokerweave.config.gateway import LISTS, SECTIONS
from brokerweave.config.reference import page

_OPENING = """\
# A gateway's configuration

`brokerweave gateway GATEWAY.toml` reads a TOML file. Each key has a flag, too, and a flag wins over the
file. A key that is not on this page is an error. A relative path in a file is relative to that file. What a
gateway is for: [gateways.md](gateways.md).

```toml
[gateway]
id = "g1"
listen = "127.0.0.1:1883"
controller = ["10.0.0.5:7900"]
key_file = "cluster.key"
```

*This page is made by `make docs` from `src/brokerweave/config/gateway.py`.*
"""


_CLOSING = "As a flag: `--site NAME=HOST:PORT,HOST:UDPPORT`, once for each; `bare` has none.\n"


def gateway_reference() -> str:
    """The whole page."""
    return page(_OPENING, SECTIONS, LISTS, _CLOSING)


if __name__ == "__main__":
    print(gateway_reference(), end="")
