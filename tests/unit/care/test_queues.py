"""What a holder keeps for other nodes' clients, and what takes it off again."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokerweave.care import queues as module
from brokerweave.care.held import Held
from brokerweave.care.queues import Queues
from brokerweave.care.shelf import Shelf
from brokerweave.links.journal import MemoryJournal
from tests.unit.care.messages import held, sequences

ROOM = 1 << 30


def table(client_bytes: int = ROOM, total: int = ROOM, window: float = 60.0) -> Queues:
    return Queues(client_bytes, total, window)


def test_what_a_client_has_is_not_kept_again_whoever_brings_it() -> None:
    queues = table()
    queues.add("c", held(1), now=0)
    queues.received("c", [held(1).hash], now=1)
    queues.got("c", [held(2).id], now=1)  # which comes later, from somebody who kept it
    for sequence in (1, 2, 3):
        queues.add("c", held(sequence), now=2)
    assert sequences(queues.take("c")) == [3]


def test_a_queue_is_given_in_order_and_stays_until_it_is_received() -> None:
    queues = table()
    for sequence in (1, 2, 3):
        queues.add("c", held(sequence), now=0)
    assert sequences(queues.take("c")) == [1, 2, 3]
    queues.received("c", [held(2).hash], now=1)
    assert sequences(queues.take("c")) == [1, 3]
    queues.got("c", [held(3).id, held(9).id], now=1)
    assert sequences(queues.take("c")) == [1]
    queues.forget("c")
    assert queues.take("c") == []
    assert (len(queues), queues.bytes, queues.clients) == (0, 0, [])


def test_what_was_asked_for_at_qos_0_is_given_once() -> None:
    queues = table()
    queues.add("c", held(1), now=0, qos=0)
    queues.add("c", held(2), now=0, qos=1)
    assert sequences(queues.take("c")) == [1, 2]
    assert sequences(queues.take("c")) == [2]


def test_a_publication_that_comes_twice_is_owed_once() -> None:
    queues = table()
    for _ in range(2):
        queues.add("c", held(1), now=0)
    queues.received("c", [held(1).hash], now=0)
    assert queues.take("c") == []


def test_what_others_hand_over_once_its_receipt_came_is_not_kept_again() -> None:
    """It came from its origin as well, or from a second one who kept it."""
    queues = table()
    queues.add("c", held(1), now=10, home="d")
    queues.received("c", [held(1).hash, held(2).hash], now=10, home="d")
    for sequence in (1, 2, 2, 3):
        queues.take_over("c", "d", [(1, held(sequence))], now=10.1, since=-1.0)
    assert sequences(queues.take("c")) == [3]
    queues.received("c", [held(3).hash], now=11, home="d")
    queues.expire(now=11 + module.HAD_SECONDS)
    assert not queues.remembers


def test_what_clients_have_is_remembered_for_so_many_and_counted_beyond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_HAD", 1)
    queues = table()
    for sequence in (1, 2):
        queues.add("c", held(sequence), now=0)
        queues.received("c", [held(sequence).hash], now=0)
    assert queues.had_dropped == 1


def test_a_receipt_that_comes_before_its_publication_is_remembered_once() -> None:
    queues = table()
    queues.received("c", [held(1, "on").hash], now=0)
    queues.add("c", held(1, "on"), now=1)
    queues.add("c", held(2, "on"), now=1)
    assert sequences(queues.take("c")) == [2]


def test_an_early_receipt_is_forgotten_after_a_while_and_counted() -> None:
    queues = table()
    queues.received("c", [held(1).hash], now=0)
    queues.expire(now=module.EARLY_SECONDS)
    queues.add("c", held(1), now=module.EARLY_SECONDS)
    assert sequences(queues.take("c")) == [1]
    assert queues.early_dropped == 1


def test_an_early_receipt_that_met_its_publication_takes_no_younger_one_along() -> None:
    queues = table()
    queues.received("c", [held(1, "on").hash], now=0)
    queues.add("c", held(1, "on"), now=1)
    queues.received("c", [held(2, "on").hash], now=module.EARLY_SECONDS - 0.1)
    queues.expire(now=module.EARLY_SECONDS)
    queues.add("c", held(2, "on"), now=module.EARLY_SECONDS)
    assert queues.take("c") == []
    assert queues.early_dropped == 0


def test_early_receipts_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_EARLY", 10)
    queues = table()
    for sequence in range(15):
        queues.received("c", [held(sequence).hash], now=0)
    assert queues.early_dropped == 5
    for sequence in range(15):
        queues.add("c", held(sequence), now=0)
    assert sequences(queues.take("c")) == [0, 1, 2, 3, 4]


def test_a_receipt_of_one_node_takes_off_nothing_that_was_kept_for_another() -> None:
    queues = table()
    queues.add("c", held(1, "on"), now=0, home="d")
    queues.add("c", held(2, "on"), now=0, home="e")
    queues.received("c", [held(2, "on").hash], now=0, home="e")
    assert sequences(queues.take("c")) == [1]


def test_each_client_has_its_own_queue_of_what_is_shared() -> None:
    queues = table()
    queues.hold(held(1), {"c": ("d", 1), "b": ("d", 0)}, now=0)
    queues.received("c", [held(1).hash], now=0, home="d")
    assert (queues.take("c"), sequences(queues.take("b"))) == ([], [1])
    assert len(queues) == 0


def test_the_oldest_of_a_client_go_when_it_is_owed_too_much() -> None:
    size = held(1).size
    queues = table(client_bytes=3 * size)
    for sequence in range(1, 6):
        queues.add("c", held(sequence), now=0)
    queues.add("b", held(9), now=0)
    assert sequences(queues.take("c")) == [3, 4, 5]
    assert queues.dropped == {"c": 2}
    assert sequences(queues.take("b")) == [9]


def test_what_came_while_a_client_was_nowhere_no_broker_has() -> None:
    queues = table()
    queues.hold(held(1), {"c": ("d", 1)}, now=0)
    queues.hold(held(2), {"c": ("d", 1)}, now=1, nowhere={"c"})
    queues.moved("c", "d", since=1, now=2)
    assert [one.id.sequence for one in queues.take("c", own=True)] == [1]
    assert [one.id.sequence for one in queues.take("c", own=False)] == [2]
    queues.received("c", [held(2).hash], now=3, home="d")
    assert queues.take("c", own=False) == []


def test_of_what_was_kept_where_a_client_is_only_what_is_older_than_its_session_is_asked_for() -> None:
    queues = table()
    for number, node in enumerate("ddee", 1):
        queues.add("c", held(number, born=number), now=number, home=node)
    queues.moved("c", "d", since=1, now=9)
    assert sequences(queues.take("c", own_before=2)) == [1, 3, 4]


def test_what_a_client_gets_where_it_is_stays_until_that_node_has_its_receipt() -> None:
    queues = table()
    queues.hold(held(1), {"c": ("d", 1)}, now=0)
    queues.hold(held(2), {"c": ("d", 1)}, now=0)
    queues.received("c", [held(1).hash], now=1, home="e")  # before it is known to be for e
    queues.routed("c", [held(1).id, held(2).id], "e")
    assert sequences(queues.take("c")) == [2]
    queues.received("c", [held(2).hash], now=2, home="e")
    assert not queues.has_pending("c")


def test_what_a_client_had_where_it_is_before_its_holder_was_started_is_not_owed_as_of_there() -> None:
    """It comes as for the site where the client was, which is dead, from who could not give it before."""
    queues = table()
    queues.add("c", held(1), now=10, home="dead")
    queues.received_before("c", [held(1).hash, held(2).hash], now=10, home="e")
    queues.add("c", held(2), now=10, home="dead")
    queues.add("c", held(3), now=10, home="dead")
    queues.routed("c", [held(1).id, held(2).id, held(3).id], "e")
    assert sequences(queues.take("c")) == [3]


def test_the_oldest_of_all_go_when_too_much_is_owed() -> None:
    size = held(1).size
    queues = table(total=3 * size)
    for sequence, client in enumerate("abcab", 1):
        queues.add(client, held(sequence), now=0)
    assert {client: sequences(queues.take(client)) for client in "abc"} == {"a": [4], "b": [5], "c": [3]}
    assert queues.dropped == {"a": 1, "b": 1}
    assert queues.bytes <= 3 * size


def test_one_that_is_larger_than_the_bound_is_not_kept() -> None:
    queues = table(client_bytes=1000)
    queues.add("c", held(1, "x" * 2000), now=0)
    assert queues.take("c") == []
    assert queues.dropped == {"c": 1}


def test_what_is_too_old_goes_and_is_counted() -> None:
    queues = table(window=60)
    queues.add("c", held(1), now=0)
    queues.add("c", held(2), now=30)
    queues.expire(now=60)
    assert sequences(queues.take("c")) == [2]
    assert queues.dropped == {"c": 1}


def test_drops_are_counted_by_name_for_a_bounded_number_of_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NAMES", 2)
    queues = table(window=1)
    for client in "abcdab":
        queues.add(client, held(queues.dropped.total()), now=0)
        queues.expire(now=1)
    assert queues.dropped == {"a": 2, "b": 2, "": 2}


def test_what_comes_late_for_a_client_that_moved_is_to_be_passed_on() -> None:
    queues = table()
    assert queues.add("c", held(1), now=0, home="d") is None
    assert queues.moved("c", "e", 7, now=0)
    assert queues.add("c", held(2), now=0, home="d") == "e"
    assert queues.add("c", held(3), now=1, home="e") is None
    assert sequences(queues.take("c")) == [1, 2]  # the third its broker at e has


def test_of_two_places_the_later_counts() -> None:
    queues = table()
    assert queues.moved("c", "e", 7, now=0)
    assert not queues.moved("c", "d", 6, now=0)
    assert queues.add("c", held(1), now=0, home="d") == "e"
    assert queues.moved("c", "d", 8, now=0)
    assert queues.add("c", held(2), now=0, home="d") is None


def test_where_a_client_is_is_forgotten_after_the_window() -> None:
    queues = table(window=60)
    queues.moved("c", "e", 7, now=0)
    queues.expire(now=60)
    assert queues.add("c", held(1), now=60, home="d") is None


def test_many_receipts_leave_no_trace() -> None:
    queues = table()
    for sequence in range(5000):
        queues.add("c", held(sequence), now=0)
        queues.received("c", [held(sequence).hash], now=0)
    assert len(queues._order) <= 1001
    assert queues.shelf.memory_bytes == 0


CLIENTS, HOMES, TEXTS = "bc", "de", ("on", "off", "x")
operation = st.tuples(
    st.sampled_from(("add", "add", "add", "receipt", "receipt", "got", "flush", "restart")),
    st.sampled_from(CLIENTS),
    st.sampled_from(HOMES),
    st.sampled_from(TEXTS),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(operation, max_size=60), st.integers(0, 5000), st.booleans())
def test_no_order_of_publications_receipts_and_restarts_loses_or_doubles(
    operations: list[tuple[str, str, str, str]], memory: int, rewrite: bool
) -> None:
    """Against lists; each operation is written down before the next begins, but memory may be short."""
    journal = MemoryJournal()
    slack = 0 if rewrite else 1 << 20

    def start() -> Queues:
        return Queues(ROOM, ROOM, 60, Shelf(journal, memory, slack, trim_after=1))

    queues = start()
    pending: dict[str, list[tuple[str, Held]]] = {client: [] for client in CLIENTS}
    early: Counter[tuple[str, str, bytes]] = Counter()
    for number, (kind, client, home, text) in enumerate(operations):
        one = held(number, text)
        key = (client, home, one.hash)
        mine = pending[client]
        match kind:
            case "add":
                queues.add(client, one, 0, home)
                if early[key]:
                    early[key] -= 1
                else:
                    mine.append((home, one))
            case "receipt":
                queues.received(client, [one.hash], 0, home)
                found = next((e for e in mine if e[0] == home and e[1].hash == one.hash), None)
                if found is None:
                    early[key] += 1
                else:
                    mine.remove(found)
            case "got" if mine:
                queues.got(client, [mine[-1][1].id], 0)
                mine.pop()
            case "restart":
                queues.flush()
                queues = start()
                queues.restore(0.0)
                early.clear()
            case "flush":
                queues.flush()
        assert len(queues) == sum(map(len, pending.values()))
    for client, entries in pending.items():
        # Rewriting puts old ones behind, and order is made again by sequence where the client comes back.
        given = sorted(queues.take(client), key=lambda one: one.id)
        assert given == [one for _, one in entries]
    assert queues.shelf.failures == 0
    for client in CLIENTS:
        queues.forget(client)
    assert (queues.bytes, queues.shelf.memory_bytes) == (0, 0)
    queues.flush()
    assert journal.records == 0


def test_what_a_node_says_later_of_a_client_of_its_own_counts_though_its_clock_was_set_back() -> None:
    queues = table()
    assert queues.moved("c", "d", since=100, now=0)
    queues.add("c", held(1), now=1, home="d")
    assert queues.take("c") == []  # its broker there has it
    assert queues.moved("c", "d", since=50, now=2)
    assert sequences(queues.take("c")) == [1]
    assert not queues.moved("c", "a", since=40, now=3)


def test_a_clock_that_is_set_makes_older_only_what_came_after_it_was() -> None:
    queues = table(window=60.0)
    queues.add("c", held(1), now=10)
    queues.add("c", held(2), now=1011)
    queues.stepped(1000.0, before=10.5)
    queues.expire(1069)
    assert sequences(queues.take("c")) == [1, 2]
    queues.expire(1070)
    assert sequences(queues.take("c")) == [2]


def test_a_client_that_is_surely_here_is_not_thought_elsewhere_by_a_later_time() -> None:
    """Clocks differ, and the node that named it later has lost it."""
    queues = Queues(10_000, 100_000, 60.0)
    assert queues.moved("c", "e", 7, now=0)
    assert not queues.moved("c", "d", 6, now=0)
    assert queues.moved("c", "d", 6, now=0, sure=True)
    assert not queues.moved("c", "a", 5, now=0)
