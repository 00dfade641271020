"""Options of the source: what is taken, and the one line for what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerweave.edgelog.arrow import SCHEMA
from brokerweave.edgelog.layout import Position
from brokerweave.errors import ConfigError
from brokerweave.pipeline.source.offsets import ReadPosition
from brokerweave.pipeline.source.options import EARLIEST, LATEST, LogBoundary, parse

NODES = {"nodes": "127.0.0.1:8815"}


def test_what_is_not_given_has_a_default() -> None:
    options = parse(NODES)
    assert options.nodes == ("127.0.0.1:8815",)
    assert options.columns == tuple(SCHEMA.names)
    assert (options.starting, options.ending) == (LogBoundary(EARLIEST), LogBoundary(LATEST))
    assert (options.max_rows, options.reader, options.skip_trimmed) == (None, None, False)
    assert options.local
    assert not parse(NODES | {"local": "never"}).local


def test_names_are_taken_in_any_case_since_spark_lowers_them() -> None:
    options = parse(
        {"NODES": "a:1, b:2,a:1", "maxrowsperbatch": "7", "onTrimmed": "skip", "nodetimeout": "2.5"}
    )
    assert options.nodes == ("a:1", "b:2")
    assert (options.max_rows, options.skip_trimmed, options.node_timeout) == (7, True, 2.5)


def test_topics_with_commas_are_given_as_json() -> None:
    assert parse(NODES | {"topics": "a/#, b/+"}).topics == ("a/#", "b/+")
    assert parse(NODES | {"topics": '["a,b", "c"]'}).topics == ("a,b", "c")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", LogBoundary(EARLIEST)),
        ("Latest", LogBoundary(LATEST)),
        ("1970-01-01T00:01:00Z", LogBoundary(time=60_000_000)),
        ("1970-01-01T02:01:00.5+02:00", LogBoundary(time=60_500_000)),
        ("1970-01-02", LogBoundary(time=86_400_000_000)),
        ('{"ab": [1, 2]}', LogBoundary(offsets={"ab": ReadPosition(Position(1, 2))})),
    ],
)
def test_a_beginning_is_a_word_a_time_or_positions(text: str, place: LogBoundary) -> None:
    assert parse(NODES | {"startingOffsets": text}).starting == place


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({}, "the option nodes is needed"),
        ({"nodes": " , "}, "the option nodes is needed"),
        (NODES | {"local": "always"}, "the option local is auto or never, not 'always'"),
        (NODES | {"topic": "a"}, "there is no option topic; known are columns, endingOffsets"),
        (NODES | {"columns": "payload,pay"}, "there is no column 'pay'; known are log_id"),
        (NODES | {"columns": "topic,topic"}, "names one twice"),
        (NODES | {"maxRowsPerBatch": "0"}, "maxRowsPerBatch is a whole number from 1, not '0'"),
        (NODES | {"rowsPerPartition": "many"}, "rowsPerPartition is a whole number from 1, not 'many'"),
        (NODES | {"nodeTimeout": "-1"}, "nodeTimeout is a number of seconds"),
        (NODES | {"nodeTimeout": "soon"}, "nodeTimeout is a number of seconds"),
        (NODES | {"onTrimmed": "ignore"}, "onTrimmed is stop or skip, not 'ignore'"),
        (NODES | {"startingOffsets": "yesterday"}, "startingOffsets is earliest, latest, JSON or a time"),
        (NODES | {"startingTime": "earliest"}, "startingTime is a time such as"),
        (NODES | {"startingOffsets": "{"}, "no JSON"),
        (NODES | {"topics": "[1]"}, "a JSON list of texts"),
        (
            NODES | {"startingOffsets": "latest", "startingTime": "2026-01-01"},
            "startingOffsets and startingTime",
        ),
        (NODES | {"reader": "no spaces"}, "a reader's name"),
        (NODES | {"token": "x", "tokenFile": "y"}, "one of the options token and tokenFile"),
    ],
)
def test_what_cannot_be_used_is_one_line_that_names_it(given: dict[str, str], line: str) -> None:
    with pytest.raises(ConfigError, match=line.replace("[", r"\[")) as caught:
        parse(given)
    assert "\n" not in str(caught.value)


def test_a_token_is_the_first_line_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\nmore\n")
    assert parse(NODES | {"tokenFile": str(file)}).secret() == "secret"
    assert parse(NODES | {"token": "given"}).secret() == "given"
    assert parse(NODES).secret() is None
    file.write_text("\n")
    with pytest.raises(ConfigError, match="holds no token"):
        parse(NODES | {"tokenFile": str(file)}).secret()
    with pytest.raises(ConfigError, match="cannot be read"):
        parse(NODES | {"tokenFile": str(tmp_path / "absent")}).secret()
