"""Connections in virtual time behave as TCP's do, the bad ways included."""

from __future__ import annotations

from dataclasses import dataclass, field

from brokerweave.sim.pipes import BUFFER, Handler, PipeEnd, StreamNetwork
from brokerweave.sim.world import VirtualHost, World


@dataclass
class Side:
    end: PipeEnd
    got: bytes = b""
    ended: int = 0
    again: int = 0

    def received(self, data: bytes) -> None:
        self.got += data

    def lost(self) -> None:
        self.ended += 1

    def writable_again(self) -> None:
        self.again += 1


@dataclass
class Two:
    """Two hosts, connected."""

    world: World = field(default_factory=lambda: World("7"))
    sides: list[Side] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.network = StreamNetwork(self.world, lambda one, other: 0.1)
        self.hosts = [VirtualHost(self.world, name) for name in "ab"]
        for host in self.hosts:
            host.start()

        def stand(end: PipeEnd) -> Handler:
            self.sides.append(Side(end))
            return self.sides[-1]

        self.network.listen("b", self.hosts[1], stand)
        self.network.connect(self.hosts[0], "b", stand, lambda: None)
        self.pass_time(1.0)
        self.b, self.a = self.sides

    def pass_time(self, seconds: float) -> None:
        self.world.run(self.world.elapsed + seconds)


def test_bytes_arrive_whole_in_order_and_late() -> None:
    two = Two()
    for number in range(50):
        two.a.end.write(b"%03d" % number)
    assert two.b.got == b""
    two.pass_time(1.0)
    assert two.b.got == b"".join(b"%03d" % number for number in range(50))


def test_a_close_comes_after_what_was_written() -> None:
    two = Two()
    two.a.end.write(b"last words")
    two.a.end.close()
    two.pass_time(1.0)
    assert (two.b.got, two.b.ended, two.a.ended) == (b"last words", 1, 1)


def test_a_cut_loses_what_is_on_the_way_and_both_ends_notice() -> None:
    two = Two()
    two.a.end.write(b"lost")
    two.network.wire("a", "b").cut()
    two.pass_time(1.0)
    assert (two.b.got, two.b.ended, two.a.ended) == (b"", 1, 1)


def test_a_half_open_connection_is_noticed_by_one_end_only() -> None:
    two = Two()
    two.network.wire("a", "b").cut(half_open=True)
    two.pass_time(5.0)
    assert two.a.ended + two.b.ended == 1
    unaware = two.a if two.b.ended else two.b
    unaware.end.abort()
    two.pass_time(1.0)
    assert unaware.ended == 1


def test_a_partition_delays_and_loses_nothing() -> None:
    two = Two()
    two.network.wire("a", "b").block()
    two.a.end.write(b"patience")
    two.pass_time(5.0)
    assert two.b.got == b""
    two.network.wire("a", "b").heal()
    assert two.b.got == b"patience"


def test_a_reader_that_pauses_makes_its_writer_wait() -> None:
    two = Two()
    two.b.end.pause()
    two.a.end.write(bytes(BUFFER))
    two.pass_time(1.0)
    assert not two.a.end.writable
    two.b.end.resume()
    two.pass_time(1.0)
    assert two.a.end.writable
    assert two.a.again == 1


def test_a_frozen_host_does_everything_when_it_thaws() -> None:
    two = Two()
    done: list[float] = []
    two.hosts[1].later(0.5, lambda: done.append(two.world.elapsed))
    two.hosts[1].freeze()
    two.a.end.write(b"hello")
    two.pass_time(2.0)
    assert (done, two.b.got) == ([], b"")
    two.hosts[1].thaw()
    assert (len(done), two.b.got) == (1, b"hello")


def test_nothing_runs_on_a_host_that_died() -> None:
    two = Two()
    done: list[str] = []
    two.hosts[1].later(0.5, lambda: done.append("late"))
    two.hosts[1].die()
    two.pass_time(1.0)
    assert done == []
    assert (two.a.ended, two.b.ended) == (1, 0)


def test_a_host_that_is_down_refuses_a_connection() -> None:
    two = Two()
    two.hosts[1].die()
    refused: list[bool] = []

    def made(end: PipeEnd) -> Handler:
        raise AssertionError("nobody listens")

    two.network.connect(two.hosts[0], "b", made, lambda: refused.append(True))
    two.pass_time(1.0)
    assert refused == [True]
