"""What happened, counted: no drop, refusal or repetition is silent.

Invariant: a counter only grows while the node runs. Names are the ones `status` and the docs use.
"""

from __future__ import annotations

DROPS = "dropped_"
"""Counters of messages that were lost on purpose begin with this; the rest of the name is the cause."""


class Counters:
    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values: dict[str, int] = {}

    def add(self, name: str, amount: int = 1) -> None:
        if amount:
            self.values[name] = self.values.get(name, 0) + amount

    def __getitem__(self, name: str) -> int:
        return self.values.get(name, 0)

    def drops(self) -> dict[str, int]:
        """Messages dropped, by cause."""
        return {n.removeprefix(DROPS): v for n, v in sorted(self.values.items()) if n.startswith(DROPS)}

    def others(self) -> dict[str, int]:
        return {n: v for n, v in sorted(self.values.items()) if not n.startswith(DROPS)}
