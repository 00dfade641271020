"""Prints docs/controller.md, made from the keys: `python -m brokerweave.config.controller_reference`.

Owns the page's opening only; a test compares the page with the keys.
"""

from __future__ import annotations

from brokerweave.config.controller import LISTS, SECTIONS
from brokerweave.config.reference import page

_OPENING = """\
# The controller's configuration

`brokerweave controller CONTROLLER.toml` reads a TOML file. Each key has a flag, too, and a flag wins over the
file. A key that is not on this page is an error. A relative path in a file is relative to that file. What a
controller is for, and how it is asked something: [gateways.md](gateways.md).

```toml
[controller]
id = "c1"
listen = "10.0.0.5:7900"
api = "127.0.0.1:7901"
key_file = "cluster.key"
data_dir = "/var/lib/brokerweave/controller"

[membership]
bind = "10.0.0.5:7946"
join = ["10.0.0.1:7946"]

[[site]]
name = "a"
weight = 2.0
```

*This page is made by `make docs` from `src/brokerweave/config/controller.py`.*
"""


_CLOSING = "As a flag: `--site NAME=HOST:PORT,HOST:UDPPORT`, once for each; `weight` has none.\n"


def controller_reference() -> str:
    """The whole page."""
    return page(_OPENING, SECTIONS, LISTS, _CLOSING)


if __name__ == "__main__":
    print(controller_reference(), end="")
