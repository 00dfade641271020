"""What a node says when it cannot serve its log."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from brokerweave.config import Address, FlightSection
from brokerweave.errors import ConfigError
from brokerweave.runtime.flight import FlightChild

HERE = Address("127.0.0.1", 0)


def test_without_pyarrow_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"brokerweave\[arrow\]") as caught:
        FlightChild(FlightSection(HERE), Path("log"), lambda message: None)
    assert "\n" not in str(caught.value)


def test_a_service_without_a_token_is_a_warning_and_its_state_is_told() -> None:
    said: list[str] = []
    child = FlightChild(FlightSection(HERE), Path("log"), said.append)
    assert ["token_file" in message for message in said] == [True]
    assert child.status() == {
        "listen": "127.0.0.1:0",
        "state": "starting",
        "reason": "",
        "pid": None,
        "restarts": 0,
    }
    FlightChild(FlightSection(HERE, Path("token")), Path("log"), said.append)
    assert len(said) == 1
