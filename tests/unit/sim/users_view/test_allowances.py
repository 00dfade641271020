"""The list of allowances is short, and each entry is documented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from brokerweave.sim.users_view.allowances import ALLOWANCES, Allowance

GUARANTEES = (Path(__file__).parents[4] / "docs" / "guarantees.md").read_text()


def test_there_are_ten_at_most() -> None:
    assert len(ALLOWANCES) <= 10


@pytest.mark.parametrize("allowance", ALLOWANCES, ids=lambda each: each.name)
def test_each_has_one_sentence_and_a_section_that_says_so(allowance: Allowance) -> None:
    assert allowance.holds.__doc__
    titles = re.findall(r"^### (.*)$", GUARANTEES, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}
    assert allowance.anchor in anchors
