"""`brokerweave demo`: several sites on this machine, shown at work. What happens is in `brokerweave.demo`."""

from __future__ import annotations

import typer

from brokerweave.cli.output import help_text

_HELP = """Show several sites with different brokers at work, on this machine, for about a minute.

Sensors publish at one site and are heard at every other; a node is killed and comes back; the summary says
what was published, delivered, lost and doubled. Ends by itself; exit code 0 if nothing was lost or doubled.

\b
Example:
  brokerweave demo
"""


def register(app: typer.Typer) -> None:
    app.command("demo", help=help_text(_HELP))(demo)


def demo() -> int:
    from brokerweave.demo import run

    return run()
