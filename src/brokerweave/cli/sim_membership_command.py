"""`brokerweave sim membership`: how soon members know of each other, what it costs, and how often they err.

Owns its arguments and how results are shown. Must not know: the scenario, the protocol.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brokerweave.cli.output import console, help_text, progress, table

if TYPE_CHECKING:
    from brokerweave.sim.membership import MembershipOptions, MembershipResult

_HELP = """Run up to some thousand members in virtual time on a network that loses datagrams.

All members know each other at the beginning. For the duration nothing happens: this shows what membership
costs, and whether a living member is declared dead. Then metadata changes, and members crash and return, one
after another. The command measures the time until every other member knows. The same options give the same
run. Exit code 1 if a living member was declared dead, or if something was not known everywhere within two
minutes.

\b
Examples:
  brokerweave sim membership --nodes 100 --loss 0.05
  brokerweave sim membership --nodes 1000 --crashes 0 --changes 0 --json
"""


def register(app: typer.Typer) -> None:
    app.command("membership", help=help_text(_HELP))(membership)


def membership(
    nodes: Annotated[int, typer.Option(help="Members.", min=2, max=10_000)] = 100,
    preset: Annotated[str, typer.Option(help="As preset under \\[membership]: lan, wan or local.")] = "lan",
    loss: Annotated[
        float, typer.Option(help="The part of the datagrams that is lost.", min=0, max=0.99)
    ] = 0.05,
    doubled: Annotated[float, typer.Option(help="The part that arrives twice.", min=0, max=1)] = 0.01,
    delay: Annotated[float, typer.Option(help="Seconds of a datagram at least.", min=0, max=10)] = 0.0005,
    jitter: Annotated[float, typer.Option(help="Seconds more at most.", min=0, max=10)] = 0.002,
    duration: Annotated[
        float, typer.Option(help="Virtual seconds in which nothing happens.", min=1, max=86_400)
    ] = 60.0,
    crashes: Annotated[int, typer.Option(help="Crashes and returns.", min=0, max=100_000)] = 20,
    changes: Annotated[int, typer.Option(help="Changes of metadata.", min=0, max=100_000)] = 20,
    seed: Annotated[int, typer.Option(help="The seed of all randomness.", min=0)] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> int:
    from brokerweave.sim.membership import MembershipOptions

    result, cost = _measured(
        MembershipOptions(
            nodes=nodes,
            preset=preset,
            loss=loss,
            doubled=doubled,
            delay=delay,
            jitter=jitter,
            duration=duration,
            crashes=crashes,
            changes=changes,
            seed=seed,
        )
    )
    if as_json:
        print(json.dumps({**asdict(result), "cost": cost}, indent=2))
    else:
        shown = table("what", "how much")
        for name, value in rows(result, cost):
            shown.add_row(name, value)
        console().print(shown)
    unknown = sum(each["never"] for each in (result.crash_known, result.return_known, result.change_known))
    return 1 if result.false_deaths or unknown else 0


def _measured(options: MembershipOptions) -> tuple[MembershipResult, dict[str, float]]:
    import gc
    import resource
    import time

    from brokerweave.sim.membership import MembershipRun

    began = time.perf_counter()

    def show(part: float) -> None:
        progress(f"{part:.0%} of the virtual time, {time.perf_counter() - began:.0f} s")

    run = MembershipRun(options, show)
    run.acquaint()
    # The tables of all members live to the end: the collector would find no garbage in them.
    gc.collect()
    gc.freeze()
    result = run.run()
    gc.unfreeze()
    progress("")
    return result, {
        "real_seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds": round(time.process_time(), 1),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def rows(result: MembershipResult, cost: dict[str, float]) -> list[tuple[str, str]]:
    refused = ", ".join(f"{cause} {count:,}" for cause, count in result.refused.items() if count)
    return [
        ("datagrams of each node", f"{result.datagrams_per_node_second:,.1f} a second"),
        (
            "in bytes",
            f"{result.bytes_per_node_second:,.0f} a second, the longest {result.largest_datagram:,}",
        ),
        ("tables of each node", f"{result.stream_bytes_per_node_second:,.0f} bytes a second"),
        ("suspected in vain", f"{result.false_suspicions:,}"),
        ("declared dead in vain", f"{result.false_deaths:,}"),
        ("until all know a crash", _spread(result.crash_known)),
        ("until all know a return", _spread(result.return_known)),
        ("until all know metadata", _spread(result.change_known)),
        ("datagrams refused", refused or "none"),
        ("virtual time", f"{result.virtual_seconds:,.0f} s"),
        ("real time", f"{cost['real_seconds']:,.1f} s ({cost['cpu_seconds']:,.1f} s of CPU)"),
        ("peak memory", f"{cost['peak_bytes'] / 1e6:,.0f} MB"),
    ]


def _spread(summary: dict[str, Any]) -> str:
    if not summary["count"]:
        return "-"
    if summary["never"] == summary["count"]:
        return f"never, {summary['count']} times"
    said = f"{summary['median']:.2f} s, p99 {summary['p99']:.2f} s, worst {summary['worst']:.2f} s"
    return f"{said} ({summary['count']} times, {summary['never']} of them never)"
