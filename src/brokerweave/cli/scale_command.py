"""`brokerweave sim scale`: what thousands of nodes cost, in virtual time, and what the run itself took.

Owns its arguments, real time and memory, and how results are shown. Must not know: the scenario.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from brokerweave.cli.output import console, help_text, progress, table
from brokerweave.cli.strategy_option import StrategyName, known

if TYPE_CHECKING:
    from brokerweave.sim.scale import ScaleOptions, ScalePhase, ScaleResult

_HELP = """Run one scenario over a tree of up to 100,000 nodes, or a mesh of 1,000, and print what it cost.

The nodes are the real ones, without sockets, disks and pings. In parts of the duration: until 0.1 links
come up and clients subscribe; until 0.7 clients change what they want; from 0.65 to 0.75 a link in the middle
is cut (in a mesh: a site, whose clients go elsewhere); at 0.875 one client asks for something new; clients
publish from 0.1 on. The same options give the same run. Exit code 1 if what was published at rest missed a
site that wanted it, if anything reached a site twice, or if nothing was published at rest, so that nothing
was checked.

\b
Examples:
  brokerweave sim scale --nodes 10000 --strategy sf
  brokerweave sim scale --nodes 1000 --shape row --strategy pf --json
  brokerweave sim scale --nodes 300 --strategy mesh --churn 0.5
"""


def register(app: typer.Typer) -> None:
    app.command("scale", help=help_text(_HELP))(scale)


def scale(
    nodes: Annotated[int, typer.Option(help="Sites.", min=2, max=100_000)] = 100,
    shape: Annotated[
        str,
        typer.Option(
            help="The tree: row, binary, star (of stars), random, or hub; for strategies that work on any."
        ),
    ] = "binary",
    strategy: StrategyName = None,
    duration: Annotated[float, typer.Option(help="Seconds of virtual time.", min=10, max=86_400)] = 600.0,
    clients: Annotated[int, typer.Option(help="Clients at each site.", min=1, max=1000)] = 1,
    holds: Annotated[int, typer.Option(help="Filters that a client holds.", min=1, max=1000)] = 2,
    filters: Annotated[
        int,
        typer.Option(
            help="Different filters to choose from, the n-th n times as rarely as the first.",
            min=1,
            max=1_000_000,
        ),
    ] = 50,
    wide: Annotated[
        float,
        typer.Option(help="Part of the choices that is a wildcard over ten topics.", min=0, max=1),
    ] = 0.0,
    churn: Annotated[
        float,
        typer.Option(help="Clients a second, of all together, that change what they want.", min=0, max=1000),
    ] = 2.0,
    publications: Annotated[
        float, typer.Option(help="Publications a second, of all clients together.", min=0, max=1000)
    ] = 0.2,
    delay: Annotated[float, typer.Option(help="Seconds that a link takes, one way.", min=0, max=60)] = 0.01,
    barrier: Annotated[
        bool, typer.Option("--barrier/--async", help="Whether SUBACK waits for the other sites.")
    ] = True,
    seed: Annotated[int, typer.Option(help="The seed of all randomness.", min=0)] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> int:
    from brokerweave.sim.scale import ScaleOptions

    options = ScaleOptions(
        nodes=nodes,
        shape=shape,
        strategy=known(strategy),
        duration=duration,
        clients=clients,
        holds=holds,
        filters=filters,
        wide=wide,
        churn=churn,
        publications=publications,
        delay=delay,
        barrier=barrier,
        seed=seed,
    )
    result, cost = _measured(options)
    if as_json:
        print(json.dumps({**asdict(result), "cost": cost}, indent=2))
    else:
        _show(result, cost)
    if not result.checked:
        typer.echo("brokerweave: nothing was checked: " + _unchecked(result), err=True)
    return 1 if result.missed or result.doubled or not result.checked else 0


def _unchecked(result: ScaleResult) -> str:
    if result.returned.settled_after is None:
        return "interest did not come to rest; give it a longer --duration or a shorter --delay"
    return "no publication came at rest; give it more --publications or a longer --duration"


def _measured(options: ScaleOptions) -> tuple[ScaleResult, dict[str, float]]:
    import gc
    import time

    from brokerweave.sim.scale import ScaleRun

    began, base = time.perf_counter(), _resident()

    def show(part: float) -> None:
        virtual, real = part * options.duration, time.perf_counter() - began
        progress(f"{virtual:.0f} of {options.duration:.0f} virtual seconds, {real:.0f} real ones")

    run = ScaleRun(options, show)
    # These objects live to the end: the collector would take longer than the run, and find nothing.
    # So does what a mesh adds when its links come up.
    gc.collect()
    gc.freeze()
    rarely = gc.get_threshold()
    gc.set_threshold(200_000, 20, 100)
    result = run.run()
    gc.set_threshold(*rarely)
    gc.unfreeze()
    progress("")
    peak = _peak()
    return result, {
        "real_seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds": round(time.process_time(), 1),
        "peak_bytes": peak,
        "bytes_per_node": max(peak - base, 0) // options.nodes,
    }


def _resident() -> int:
    """Bytes that this process has in memory now."""
    import resource
    from pathlib import Path

    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _peak() -> int:
    """The most that this process ever had; what `getrusage` says has that of whoever started it, too."""
    from pathlib import Path

    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def _show(result: ScaleResult, cost: dict[str, float]) -> None:
    shown = table("what", "how much")
    for name, value in rows(result, cost):
        shown.add_row(name, value)
    console().print(shown)


def rows(result: ScaleResult, cost: dict[str, float]) -> list[tuple[str, str]]:
    published = max(result.published, 1)
    return [
        ("links from end to end", f"{result.hops:,}"),
        *_phase("clients subscribe", result.subscribing),
        *_phase("clients change", result.churn),
        *_phase("the link returns", result.returned),
        *_phase("one new filter", result.probe),
        ("its SUBACK after", f"{result.suback_after:.3f} s"),
        ("SUBACKs that waited in vain", f"{result.barrier_timeouts:,}"),
        ("filters a node knows of its neighbours", f"{result.table_mean:,.1f} (most: {result.table_max:,})"),
        ("publications", f"{result.published:,}"),
        ("links crossed by each", f"{result.crossings / published:,.1f}"),
        ("other sites that wanted each", f"{result.wanted / published:,.1f}"),
        ("checked at rest", f"{result.checked:,}, missed {result.missed:,}, doubled {result.doubled:,}"),
        ("bytes on links", f"{result.link_bytes:,}"),
        ("real time", f"{cost['real_seconds']:,.1f} s ({cost['cpu_seconds']:,.1f} s of CPU)"),
        ("peak memory", f"{cost['peak_bytes'] / 1e6:,.0f} MB"),
        ("memory for each node", f"{cost['bytes_per_node'] / 1e3:,.0f} kB"),
    ]


def _phase(name: str, phase: ScalePhase) -> list[tuple[str, str]]:
    said = f"{phase.filters_sent:,} filters in {phase.interest_packets:,} packets between nodes"
    if phase.changes:
        said += f", {phase.filters_sent / phase.changes:,.1f} for each of {phase.changes:,} changes"
    if phase.barrier_packets:
        said += f"; {phase.barrier_packets:,} packets of the barrier"
    if phase.settled_after is not None:
        said += f"; settled after {phase.settled_after:.3f} s"
    return [(name, said)]
