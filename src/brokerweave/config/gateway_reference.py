"""Prints docs/gateway.md, made from the keys: `python -m brokerweave.config.gateway_reference`.

Owns the page's opening only; a test compares the page with the keys.
"""

from __future__ import annotations

from collections.abc import Iterator

from brokerweave.config.gateway import LISTS, SECTIONS
from brokerweave.config.keys import keys_of
from brokerweave.config.reference import section_lines

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


def gateway_reference() -> str:
    """The whole page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _OPENING
    for section, shape in SECTIONS.items():
        yield from section_lines(f"[{section}]", shape, keys_of(section, shape), section in SECTIONS)
    for section, shape in LISTS.items():
        yield from section_lines(f"[[{section}]]", shape, keys_of(section, shape), section in SECTIONS)
    yield "As a flag: `--site NAME=HOST:PORT,HOST:UDPPORT`, once for each; `bare` has none.\n"


if __name__ == "__main__":
    print(gateway_reference(), end="")
