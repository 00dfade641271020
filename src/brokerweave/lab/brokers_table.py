"""Starts every broker there is, probes it and prints the table of docs/brokers.md.

Run it with `python -m brokerweave.lab.brokers_table`. A broker that cannot be started here is named on
standard error and left out.
"""

from __future__ import annotations

import asyncio
import sys

from brokerweave import lab
from brokerweave.config import Address
from brokerweave.errors import Unavailable
from brokerweave.runtime.probe import probe, rows


def probed() -> dict[str, dict[str, str]]:
    """For each broker that can be started here: its version and what the probe found."""
    found = {}
    for name, missing in lab.available().items():
        try:
            if missing:
                raise Unavailable(missing)
            with lab.start(name) as broker:
                abilities = asyncio.run(probe(Address(broker.host, broker.port)))
                found[name] = {"version": broker.version, **dict(rows(abilities))}
        except Unavailable as error:
            print(f"left out {name}: {error}", file=sys.stderr)
    return found


def markdown(found: dict[str, dict[str, str]]) -> str:
    """One column a broker, one line an ability."""
    labels = next(iter(found.values()), {})
    lines = [["", *found], ["---"] * (len(found) + 1)]
    lines += [[label, *(column[label] for column in found.values())] for label in labels]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    print(markdown(probed()))
