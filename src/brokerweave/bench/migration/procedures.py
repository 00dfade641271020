"""The two ways to move clients that are compared, with what each needs, and how fast the controller works.

Owns the tables. Must not know: processes, how anything is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Procedure(Enum):
    """How clients are moved. Its value is what the gateway's `procedure` says."""

    PLANNED = "planned"
    """Ours: the nodes keep what a client is owed, and its old site drains."""
    EMMA = "emma"
    """The paper's: Algorithm 1, and no word between the sites about clients."""


STRATEGIES: Mapping[Procedure, str] = {Procedure.PLANNED: "mesh", Procedure.EMMA: "sf"}
"""How the sites cooperate: what our procedure needs, and what is nearest to the paper's bridging tables."""


@dataclass(frozen=True, slots=True)
class ControllerTimes:
    """Seconds: between two rounds, two measurements of a site, and what `steady` waits for."""

    round: float
    measure: float
    hold: float
    rest: float


PRESETS: Mapping[str, tuple[float, ControllerTimes]] = {
    "short": (15.0, ControllerTimes(2.0, 3.0, 4.0, 6.0)),
    "paper": (60.0, ControllerTimes(15.0, 15.0, 20.0, 45.0)),
}
"""Seconds of a phase, and the controller's times. The paper's rounds and measurements are 15 s apart."""
NO_POLICY = ControllerTimes(3600.0, 15.0, 3600.0, 86_400.0)
"""Clients move only when somebody asks for it."""
