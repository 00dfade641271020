"""The list of dead letters: bounds, ids, storage."""

import json

from brokerweave.links.dead_letters import DeadLetters


def add(letters: DeadLetters, text: str) -> int:
    return letters.add(5.0, "t", 1, 4, "refused", text.encode()).id


def test_the_newest_letters_stay_when_there_are_too_many() -> None:
    letters = DeadLetters(max_count=2)
    for text in ("one", "two", "three"):
        add(letters, text)
    assert [letter.frame for letter in letters.entries()] == [b"two", b"three"]
    assert (letters.total, letters.evicted) == (3, 1)


def test_the_newest_letters_stay_within_the_bound_in_bytes() -> None:
    letters = DeadLetters(max_bytes=10)
    for text in ("aaaa", "bbbb", "cccc"):
        add(letters, text)
    assert [letter.frame for letter in letters.entries()] == [b"bbbb", b"cccc"]
    assert letters._bytes == 8


def test_a_letter_larger_than_the_list_is_noted_without_its_bytes() -> None:
    letters = DeadLetters(max_bytes=10)
    add(letters, "small")
    add(letters, "x" * 11)
    assert [(letter.size, letter.frame) for letter in letters.entries()] == [(5, b"small"), (11, b"")]
    assert letters.evicted == 0


def test_a_letter_is_popped_once() -> None:
    letters = DeadLetters()
    letter_id = add(letters, "one")
    popped = letters.pop(letter_id)
    assert popped is not None
    assert (popped.when, popped.topic, popped.qos, popped.reason) == (5.0, "t", 1, "refused")
    assert letters.pop(letter_id) is None
    assert (len(letters), letters._bytes) == (0, 0)


def test_each_change_of_the_list_changes_its_revision() -> None:
    letters = DeadLetters()
    before = letters.revision
    letter_id = add(letters, "one")
    added = letters.revision
    letters.pop(letter_id)
    assert len({before, added, letters.revision}) == 3


def test_a_snapshot_goes_through_json_and_comes_back_whole() -> None:
    letters = DeadLetters(max_count=2)
    for text in ("one", "two", "three\xff"):
        add(letters, text)
    restored = DeadLetters(max_count=2)
    restored.restore(json.loads(json.dumps(letters.snapshot())))
    assert restored.entries() == letters.entries()
    assert (restored.total, restored.evicted) == (3, 1)
    assert restored._bytes == letters._bytes


def test_ids_are_not_given_again_after_a_restore() -> None:
    letters = DeadLetters()
    letters.pop(add(letters, "one"))
    restored = DeadLetters()
    restored.restore(letters.snapshot())
    assert add(restored, "two") == 2


def test_a_smaller_list_restores_the_newest() -> None:
    letters = DeadLetters()
    for text in ("one", "two", "three"):
        add(letters, text)
    restored = DeadLetters(max_count=1)
    restored.restore(letters.snapshot())
    assert [letter.frame for letter in restored.entries()] == [b"three"]
    assert restored.evicted == 2
