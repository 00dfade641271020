"""The feeder against a target that fails when it is told to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from brokerweave.edgelog.layout import START, Position
from brokerweave.edgelog.reader import LogReader
from brokerweave.edgelog.readers import Readers
from brokerweave.edgelog.writer import LogWriter
from brokerweave.errors import Unavailable
from brokerweave.kafka import feeder
from brokerweave.kafka.feeder import Feeder, RecordTarget, TooLarge
from brokerweave.kafka.records import KafkaRecord
from tests.unit.edgelog.logs import SMALL, write_block


class Model:
    """What a cluster is to the feeder: whole batches with a position, over any number of connections."""

    def __init__(self) -> None:
        self.records: list[KafkaRecord] = []
        self.position = START
        self.names: set[str] = set()
        self.refuse: list[Exception] = []
        """Raised by the next sends, before anything is taken."""
        self.forget_answer = False
        """The next send is taken, but its answer is lost."""
        self.away = False
        self.too_large: bytes | None = None
        """A payload that is refused, with everything that comes with it."""

    @contextmanager
    def connect(self, name: str) -> Iterator[RecordTarget]:
        self.names.add(name)
        yield self

    def begin(self) -> Position:
        if self.away:
            raise Unavailable("Kafka: nobody answers")
        return self.position

    def send(self, records: Sequence[KafkaRecord], reached: Position) -> None:
        assert records
        if any(record.value == self.too_large for record in records):
            raise TooLarge(frozenset(record.position for record in records))
        if self.refuse:
            raise self.refuse.pop(0)
        self.records += records
        self.position = reached
        if self.forget_answer:
            self.forget_answer = False
            raise Unavailable("Kafka does not answer in time")

    @property
    def payloads(self) -> list[bytes]:
        return [record.value for record in self.records]


class Setting:
    """A log of one writer, and a feeder that runs until it has fed all of it, or `patience` pauses long."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = Model()
        self.writer = LogWriter(folder, "a", SMALL, lambda message: None)
        self.pauses: list[float] = []

    def write(self, *payloads: bytes) -> None:
        write_block(self.writer, *payloads)

    def feed(self, patience: int = 20, meanwhile: Callable[[], None] = lambda: None) -> Feeder:
        def stopped(seconds: float) -> bool:
            if seconds:
                self.pauses.append(seconds)
                meanwhile()
            return seconds == feeder.IDLE_SECONDS or len(self.pauses) >= patience

        fed = Feeder(self.folder, "kafka", "mqtt", self.model.connect, stopped)
        fed.run()
        return fed

    @property
    def committed(self) -> Position | None:
        return Readers(self.folder).position("kafka")


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path / "log")


def test_all_rows_are_fed_in_order_and_committed_once_the_target_has_them(setting: Setting) -> None:
    setting.write(b"1", b"2")
    setting.write(b"3")
    fed = setting.feed()
    assert setting.model.payloads == [b"1", b"2", b"3"]
    assert setting.committed == setting.model.position == LogReader(setting.folder).end()
    status = fed.status()
    assert (status["feeding"], status["sent"], status["batches"]) == (True, 3, 1)
    identity = LogReader(setting.folder).identity()
    assert setting.model.names == {f"brokerweave-kafka-{identity.log_id}"}


def test_a_batch_is_bounded_in_rows(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeder, "BATCH_ROWS", 2)
    for number in range(6):
        setting.write(b"%d" % number)
    assert setting.feed().status()["batches"] == 3
    assert setting.model.payloads == [b"%d" % number for number in range(6)]


def test_a_second_start_goes_on_where_the_first_one_ended(setting: Setting) -> None:
    setting.write(b"1")
    setting.feed()
    setting.write(b"2")
    assert setting.feed().status()["sent"] == 1
    assert setting.model.payloads == [b"1", b"2"]


def test_a_batch_whose_answer_was_lost_is_not_sent_again(setting: Setting) -> None:
    setting.write(b"1")
    setting.model.forget_answer = True
    fed = setting.feed()
    assert setting.model.payloads == [b"1"]
    assert fed.status()["failures"] == 1
    assert setting.committed == setting.model.position


def test_a_batch_that_was_refused_is_sent_again_as_a_whole(setting: Setting) -> None:
    setting.write(b"1", b"2")
    setting.model.refuse = [Unavailable("Kafka: no"), Unavailable("Kafka: no")]
    fed = setting.feed()
    assert setting.model.payloads == [b"1", b"2"]
    assert (fed.status()["failures"], fed.status()["reason"]) == (2, "")


def test_while_nobody_answers_nothing_is_committed_and_pauses_grow_to_a_bound(setting: Setting) -> None:
    setting.write(b"1")
    setting.model.away = True
    fed = setting.feed(patience=10)
    assert setting.committed in (None, START)
    assert fed.status()["reason"] == "Kafka: nobody answers"
    assert not fed.status()["feeding"]
    assert setting.pauses == sorted(setting.pauses)
    assert max(setting.pauses) == feeder.PAUSE_MAX


def test_a_log_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    setting = Setting(tmp_path / "elsewhere")
    setting.write(b"1")
    setting.folder = tmp_path / "log"

    def appear() -> None:
        if not setting.folder.exists():
            (tmp_path / "elsewhere").rename(setting.folder)

    setting.feed(meanwhile=appear)
    assert setting.model.payloads == [b"1"]


def test_a_row_that_is_too_large_is_left_out_and_counted_and_the_others_go(setting: Setting) -> None:
    setting.write(b"1", b"2", b"3")
    setting.write(b"4")
    setting.model.too_large = b"2"
    fed = setting.feed()
    assert setting.model.payloads == [b"1", b"3", b"4"]
    assert fed.status()["too_large"] == 1
    assert setting.committed == Position(1, 4)


def test_rows_that_were_trimmed_meanwhile_are_counted_and_feeding_goes_on(setting: Setting) -> None:
    setting.write(b"1")
    setting.feed()
    for number in range(40):
        setting.write(b"%d" % number * 8000)
    setting.writer.trim_before(Position(1, 10**6))
    setting.write(b"last")
    fed = setting.feed()
    kept = fed.status()["sent"]
    assert fed.status()["trimmed"] == 41 - kept > 0
    assert setting.model.payloads[-1] == b"last"


def test_what_stood_before_damage_is_not_lost_when_its_batch_fails(setting: Setting) -> None:
    setting.write(b"before")
    setting.write(b"damaged")
    setting.write(b"after")
    (segment,) = setting.folder.glob("*.seg")
    segment.write_bytes(segment.read_bytes().replace(b"damaged", b"DAMAGED"))
    setting.model.refuse = [Unavailable("Kafka: no")]
    fed = setting.feed()
    assert setting.model.payloads == [b"before", b"after"]
    assert fed.status()["damaged"] == 1


def test_a_damaged_position_of_the_reader_is_mended_from_the_target(setting: Setting) -> None:
    setting.write(b"1")
    setting.feed()
    (setting.folder / "readers" / "kafka.json").write_text("{")
    setting.write(b"2")
    setting.feed()
    assert setting.model.payloads == [b"1", b"2"]
