"""`brokerweave bench`: measure brokers and nodes, and report what was measured.

Owns the commands' arguments and how they print. Must not know: how anything is measured or computed.
"""

from __future__ import annotations

import typer

from brokerweave.cli import bench_report_command
from brokerweave.cli.output import help_text

_HELP = """Measure brokers and nodes: throughput, latency, limits, failures.

A run leaves a folder with every log; `bench report` makes a page of it.
"""


def register(app: typer.Typer) -> None:
    bench = typer.Typer(no_args_is_help=True, help=help_text(_HELP))
    bench_report_command.register(bench)
    app.add_typer(bench, name="bench")
