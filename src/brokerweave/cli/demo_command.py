"""`brokerweave demo`: several sites on this machine, shown at work. What happens is in `brokerweave.demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from brokerweave.cli.output import help_text
from brokerweave.cli.strategy_option import StrategyName, known

_HELP = """Show several sites with different brokers at work, on this machine, for about two minutes.

Sensors publish at every site, and all other sites get it. A node is killed and comes back. The summary counts
what was published, delivered, lost and doubled. With Spark, the pipeline loads it into a lake and shows the
gold table. With HAProxy, one of four sites of a mesh is killed, and its clients miss nothing. Exit code 0 if
nothing was lost or doubled.

With --gateways it shows something else, for about 40 seconds: clients in two regions, connected through
gateways. One site is drained while they publish, and takes them back. The summary counts moves, too, and
shows how long a client's messages paused.

\b
Examples:
  brokerweave demo
  brokerweave demo --gateways
  brokerweave demo --seconds 60 --broker mosquitto --broker rabbitmq --broker mosquitto
"""


def register(app: typer.Typer) -> None:
    app.command("demo", help=help_text(_HELP))(demo)


def demo(
    seconds: Annotated[float, typer.Option(help="How long the sensors publish.", min=4, max=3600)] = 20,
    plain: Annotated[bool, typer.Option("--plain", help="Print lines instead of a live picture.")] = False,
    broker: Annotated[
        list[str] | None,
        typer.Option(help="The broker of one site, from left to right; by default whatever is installed."),
    ] = None,
    strategy: StrategyName = None,
    pipeline: Annotated[
        bool, typer.Option(help="At the end, bring what was sent to a lake, and show its gold table.")
    ] = True,
    lake: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to make the lake; default: in your caches.")
    ] = None,
    mesh: Annotated[
        bool, typer.Option(help="Then kill one of four sites of a mesh behind HAProxy, if that is installed.")
    ] = True,
    gateways: Annotated[
        bool, typer.Option("--gateways", help="Show gateways and a controller, and nothing else.")
    ] = False,
) -> int:
    from brokerweave.demo import run, run_gateways

    if gateways:
        return run_gateways(seconds)
    return run(
        seconds,
        plain=plain,
        brokers=broker,
        strategy=known(strategy),
        pipeline=pipeline,
        lake=lake,
        mesh=mesh,
    )
