"""No code that runs strategies knows one of them: names come from the registry, facts from declarations."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from brokerweave.config.keys import KEYS
from brokerweave.plugin import registry
from tests.unit.test_layers import PACKAGE, imported, registered_strategies

LAYERS = ("sim", "bench", "demo", "lab", "cli")
DATA = {
    "bench/failover.py": "what `bench failover` measures by default",
    "bench/patterns.py": "the patterns of the paper, which names PF and SF",
    "demo/mesh.py": "what the demo's second part shows",
    "sim/topology.py": "a wiring that has the same name, for --wiring",
}
"""Files that hold a strategy's name as data, and why."""


def sources() -> list[Path]:
    return sorted(path for layer in LAYERS for path in (PACKAGE / layer).rglob("*.py"))


def named(source: str) -> set[str]:
    """Registered names that stand in a file as strings of their own."""
    texts = (each.value for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Constant))
    return set(registry.known_strategies()) & {text for text in texts if isinstance(text, str)}


def test_only_tables_of_data_name_a_strategy() -> None:
    found = {str(path.relative_to(PACKAGE)) for path in sources() if named(path.read_text())}
    assert found == set(DATA)


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_file_imports_a_strategy(path: Path) -> None:
    # `node --check` says what the mesh stands for, until its own options do.
    if path.name == "node_command.py":
        return
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    names = imported(ast.parse(path.read_text()), ".".join(parts), path.name == "__init__.py")
    strategies = registered_strategies()
    assert not [name for name in names if any(f"{name}.".startswith(f"{each}.") for each in strategies)]


def test_the_default_is_the_configurations() -> None:
    assert KEYS["node.strategy"].default == registry.DEFAULT
    assert registry.DEFAULT in registry.known_strategies()
