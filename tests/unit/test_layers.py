"""The import rules of docs/architecture.md: imports point down only, and pure layers touch nothing outside.

Owns the list of layers. A new folder under src/brokerweave has to be given its place here first.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "brokerweave"

# From the ground up; the members of one set are siblings, and may not import each other.
LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"errors", "tables"}),
    frozenset({"mqtt"}),
    frozenset({"plugin"}),
    frozenset({"config", "cooperation", "edgelog", "membership"}),
    frozenset({"session", "links", "flight", "kafka", "placement", "gateway"}),
    frozenset({"care"}),
    frozenset({"node"}),
    frozenset({"runtime", "sim"}),
    frozenset({"pipeline"}),
    frozenset({"lab"}),
    frozenset({"bench"}),
    frozenset({"demo"}),
    frozenset({"cli"}),
)
HEIGHT = {layer: height for height, layers in enumerate(LAYERS) for layer in layers}
PURE = frozenset(
    {
        "mqtt",
        "plugin",
        "session",
        "links",
        "cooperation",
        "membership",
        "placement",
        "gateway",
        "care",
        "node",
    }
)
# Knows files, and nothing else outside: node, reader and command each have their own loop, or none.
FILES_ONLY = frozenset({"edgelog"})
NEEDS_ARROW = frozenset({"brokerweave.edgelog.arrow"})
ARROW_LAYERS = frozenset({"flight", "pipeline", "bench"})
COMPUTES_INDEXES = "brokerweave.bench.spark_job"
KAFKA_LAYERS = frozenset({"kafka", "pipeline"})
USES_CONFIG = frozenset({"config", "runtime", "pipeline", "lab", "bench", "demo", "cli"})
OUTSIDE_WORLD = frozenset(
    {
        "aiomqtt",
        "amqtt",
        "anyio",
        "asyncio",
        "concurrent",
        "datetime",
        "fcntl",
        "fileinput",
        "glob",
        "io",
        "logging",
        "mmap",
        "multiprocessing",
        "os",
        "paho",
        "pathlib",
        "psutil",
        "queue",
        "random",
        "rich",
        "sched",
        "secrets",
        "select",
        "selectors",
        "shelve",
        "shutil",
        "signal",
        "socket",
        "socketserver",
        "sqlite3",
        "ssl",
        "subprocess",
        "sys",
        "tempfile",
        "threading",
        "time",
        "typer",
        "uuid",
        "uvloop",
    }
)
NO_FILES = OUTSIDE_WORLD - {"fcntl", "io", "mmap", "os", "pathlib", "secrets", "shutil", "tempfile"}
# Virtual time: a run is a pure function of its seed, so nothing here may see the real world. The one file
# that spreads runs over processes may start those.
REPLAYABLE = frozenset({"sim"})
SPREADS_RUNS = "brokerweave.sim.many"
HARMLESS = frozenset({"random.Random", "sys.intern"})
OUTSIDE_CALLS = frozenset({"open", "print", "input", "breakpoint"})


def layer_of(module: str) -> str:
    """The layer of a module of ours; "" for the package itself, which holds only the version."""
    part = [*module.split("."), ""][1]
    return "cli" if part == "__main__" else part


def imported(tree: ast.AST, module: str, is_package: bool) -> Iterator[str]:
    """The full name of everything a module imports, wherever in the file: "random.Random", "os"."""
    for each in ast.walk(tree):
        if isinstance(each, ast.Import):
            yield from (alias.name for alias in each.names)
        elif isinstance(each, ast.ImportFrom):
            start = module.split(".")
            keep = len(start) - each.level + is_package
            base = [*start[:keep], *filter(None, [each.module])] if each.level else [each.module or ""]
            yield from (".".join([*base, alias.name]) for alias in each.names)


def broken_rules(
    module: str, source: str, strategies: frozenset[str] = frozenset(), *, is_package: bool = False
) -> list[str]:
    """Every rule that the module breaks, in words."""
    tree = ast.parse(source)
    layer = layer_of(module)
    if layer and layer not in HEIGHT:
        return [f"{module} is in no known layer"]
    broken: list[str] = []
    for name in imported(tree, module, is_package):
        if name.split(".")[0] == "brokerweave":
            broken += own_import(module, layer, name, strategies)
        else:
            broken += foreign_import(module, layer, name)
    if layer in PURE | REPLAYABLE:
        calls = (each.func for each in ast.walk(tree) if isinstance(each, ast.Call))
        names = {call.id for call in calls if isinstance(call, ast.Name)}
        broken += [f"{module} is pure but calls {name}()" for name in sorted(names & OUTSIDE_CALLS)]
    return broken


def own_import(module: str, layer: str, name: str, strategies: frozenset[str]) -> Iterator[str]:
    other = layer_of(name)
    if other not in HEIGHT:
        # Not a layer but a name of the package itself, such as __version__.
        return
    if other != layer and (not layer or HEIGHT[other] >= HEIGHT[layer]):
        yield f"{module} imports {name}, which is not below it"
    elif other in FILES_ONLY and layer in PURE | REPLAYABLE:
        yield f"{module} is pure but imports {name}, which knows files"
    elif other == "config" and layer not in USES_CONFIG:
        yield f"{module} imports {name}, but is told what it needs by the runtime"
    owner = next((each for each in strategies if name == each or name.startswith(each + ".")), None)
    if module in strategies and owner not in (None, module):
        yield f"{module} imports {owner}, another strategy"


STRATEGY_HELPERS = frozenset({"errors", "plugin", "tables"})
MQTT_HELPERS = frozenset({"brokerweave.mqtt.trie", "brokerweave.mqtt.topics"})


def beyond_the_page(module: str, source: str) -> list[str]:
    """What a strategy imports of ours beside the public page, its own parts and plain helpers."""
    own = [name for name in imported(ast.parse(source), module, False) if name.startswith("brokerweave.")]
    package = module.rpartition(".")[0] + "."
    return [
        name
        for name in own
        if layer_of(name) not in STRATEGY_HELPERS
        and name.rpartition(".")[0] not in MQTT_HELPERS
        and not (name.startswith(package) and layer_of(module))
    ]


def foreign_import(module: str, layer: str, name: str) -> Iterator[str]:
    top = name.split(".")[0]
    if top == "pyspark" and layer != "pipeline" and module != COMPUTES_INDEXES:
        yield f"{module} imports pyspark, which only the pipeline may"
    elif layer in PURE | REPLAYABLE and top in OUTSIDE_WORLD and name not in HARMLESS:
        if module == SPREADS_RUNS and top == "multiprocessing":
            return
        yield f"{module} is pure but imports {name}"
    elif top == "pyarrow" and module not in NEEDS_ARROW and layer not in ARROW_LAYERS:
        yield f"{module} imports pyarrow, which a node must not need"
    elif top == "confluent_kafka" and layer not in KAFKA_LAYERS:
        yield f"{module} imports confluent_kafka, which a node must not need"
    elif layer in FILES_ONLY and top in NO_FILES:
        yield f"{module} knows files only but imports {name}"
    elif layer == "config" and top in {"asyncio", "socket", "uvloop", "typer", "rich"}:
        yield f"{module} only reads configuration but imports {name}"


def registered() -> dict[str, str]:
    """The strategies of this project: name to `module:Class`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    points: dict[str, str] = project["entry-points"]["brokerweave.strategies"]
    return points


def registered_strategies() -> frozenset[str]:
    """Their modules."""
    return frozenset(point.split(":")[0] for point in registered().values())


def test_every_file_obeys_the_import_rules() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    broken = []
    for path in files:
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        module = ".".join(parts[:-1] if is_package else parts)
        broken += broken_rules(module, path.read_text(), registered_strategies(), is_package=is_package)
    assert broken == []
    assert {layer_of(f"brokerweave.{path.parent.name}") for path in files} >= PURE


def test_strategies_and_examples_import_the_public_page_and_nothing_else_of_ours() -> None:
    strategies = [*(PACKAGE / "cooperation").rglob("*.py"), *(ROOT / "examples").glob("*.py")]
    beyond = {}
    for path in strategies:
        inside = path.is_relative_to(PACKAGE)
        module = ".".join(path.relative_to(PACKAGE.parent if inside else ROOT).with_suffix("").parts)
        beyond[path.name] = beyond_the_page(module, path.read_text())
    for name in ("pipeline_alerts.py", "pipeline_batch.py"):  # a pipeline's own page
        assert all(each.startswith("brokerweave.pipeline.") for each in beyond.pop(name))
    assert {name: found for name, found in beyond.items() if found} == {}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("mqtt.codec", "from brokerweave.plugin import Route"),
        ("mqtt.codec", "from brokerweave import cooperation"),
        ("mqtt.codec", "import brokerweave.runtime.node"),
        ("mqtt.codec", "from ..runtime import node"),
        ("mqtt.codec", "def late():\n    from brokerweave.node import core"),
        ("session.pair", "from brokerweave.links.outbox import Outbox"),
        ("links.outbox", "from brokerweave.session.pair import Pair"),
        ("node.core", "from brokerweave.config import NodeConfig"),
        ("mqtt.codec", "from brokerweave.config.values import Address"),
        ("config", "from brokerweave.cooperation.pf import PublicationFlooding"),
        ("config.keys", "import asyncio"),
        ("runtime.node", "from brokerweave.lab.broker import Mosquitto"),
        ("lab.broker", "from brokerweave.cli.output import console"),
        ("runtime.node", "import brokerweave.__main__"),
        ("errors", "from brokerweave.mqtt import packets"),
        ("node.core", "import time"),
        ("node.core", "from time import monotonic"),
        ("node.core", "import os.path"),
        ("node.core", "import sys"),
        ("links.lane", "import asyncio"),
        ("links.lane", "import socket as s"),
        ("session.pair", "import random"),
        ("session.pair", "from random import random"),
        ("links.outbox", "def read(path):\n    return open(path)"),
        ("links.outbox", "print('here')"),
        ("cooperation.pf", "from brokerweave.cooperation.sf import SubscriptionFlooding"),
        ("cooperation.pf", "from brokerweave.cooperation import sf"),
        ("cooperation.pf", "from . import sf"),
        ("runtime.node", "import pyspark.sql"),
        ("bench.limit", "import pyspark.sql"),
        ("lab.broker", "from brokerweave.bench.folder import RunFolder"),
        ("placement.core", "import asyncio"),
        ("placement.core", "from brokerweave.links.outbox import Outbox"),
        ("sim.node", "import asyncio"),
        ("sim.node", "import time"),
        ("sim.run", "import multiprocessing"),
        ("sim.run", "from brokerweave.runtime.journal import FileJournal"),
        ("edgelog.writer", "import asyncio"),
        ("edgelog.writer", "import socket"),
        ("edgelog.writer", "import time"),
        ("edgelog.writer", "from brokerweave.node.core import NodeCore"),
        ("edgelog.rows", "import pyarrow as pa"),
        ("runtime.node", "from pyarrow import flight"),
        ("runtime.kafka", "from confluent_kafka import Producer"),
        ("kafka.feeder", "from brokerweave.flight.client import LogClient"),
        ("node.core", "from brokerweave.edgelog.writer import LogWriter"),
        ("node.core", "import brokerweave.edgelog.reader"),
        ("surprise.module", ""),
    ],
)
def test_a_file_that_breaks_a_rule_is_named(module: str, source: str) -> None:
    name = f"brokerweave.{module}"
    strategies = frozenset({"brokerweave.cooperation.pf", "brokerweave.cooperation.sf"})
    (broken,) = broken_rules(name, source, strategies)
    assert broken.startswith(name)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("cooperation.sf", "from random import Random\nfrom brokerweave.plugin import Strategy"),
        ("cooperation.sf", "from brokerweave.mqtt.trie import Trie\nfrom sys import intern"),
        ("node.core", "from brokerweave.session import pair\nfrom brokerweave.links import lane"),
        ("runtime.node", "import asyncio, socket, time\nfrom brokerweave import __version__, config"),
        ("sim.many", "import multiprocessing"),
        ("sim.node", "from random import Random\nfrom brokerweave.node.core import NodeCore"),
        ("edgelog.arrow", "import pyarrow as pa"),
        ("edgelog.writer", "import os, fcntl\nfrom brokerweave.mqtt import scanner"),
        ("__main__", "from brokerweave.cli.main import main"),
        ("lab.node", "from brokerweave.config.values import Address"),
        ("mqtt.codec", "from brokerweave.errors import RemoteProtocolError\nfrom . import packets"),
    ],
)
def test_a_file_that_keeps_the_rules_passes(module: str, source: str) -> None:
    strategies = frozenset({"brokerweave.cooperation.pf", "brokerweave.cooperation.sf"})
    assert broken_rules(f"brokerweave.{module}", source, strategies) == []
