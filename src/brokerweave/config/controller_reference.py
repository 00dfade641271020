"""Prints docs/controller.md, made from the keys: `python -m brokerweave.config.controller_reference`.

Owns the page's opening only; a test compares the page with the keys.
"""

from __future__ import annotations

from collections.abc import Iterator

from brokerweave.config.controller import LISTS, SECTIONS
from brokerweave.config.keys import keys_of
from brokerweave.config.reference import section_lines

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


def controller_reference() -> str:
    """The whole page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _OPENING
    for section, shape in SECTIONS.items():
        yield from section_lines(f"[{section}]", shape, keys_of(section, shape), section in SECTIONS)
    for section, shape in LISTS.items():
        yield from section_lines(f"[[{section}]]", shape, keys_of(section, shape), section in SECTIONS)
    yield "As a flag: `--site NAME=HOST:PORT,HOST:UDPPORT`, once for each; `weight` has none.\n"


if __name__ == "__main__":
    print(controller_reference(), end="")
