"""The judge of the tests that kill processes: it sees what is lost, repeated or out of order."""

from __future__ import annotations

from support.models.journal import Entry, Outcome
from support.models.verdict import Death, Verdict, chronicle, judge, out_of_order

QUEUE = (0, 0)


def run(start_ns: int, offsets: range, outcome: Outcome = Outcome.DONE) -> list[Entry]:
    """One message a nanosecond; its number is its offset."""
    return [
        Entry(start_ns + n, *QUEUE, offset, offset, outcome) for n, offset in enumerate(offsets)
    ]


def test_a_clean_run_has_nothing_to_say() -> None:
    journal = {"a": run(0, range(5)), "b": run(10, range(5, 9))}
    assert judge(journal, [], [], 9) == Verdict(0, 0, 0, 0)
    assert out_of_order(journal) == 0


def test_what_nobody_finished_is_lost() -> None:
    journal = {"a": [*run(0, range(4)), *run(10, range(4, 5), Outcome.TRIED)]}
    assert judge(journal, [], [], 6) == Verdict(2, 0, 0, 0)


def test_what_comes_twice_needs_the_death_of_its_reader() -> None:
    journal = {"a": run(0, range(10)), "b": run(100, range(6, 12))}
    assert judge(journal, [], [], 12) == Verdict(0, 4, 0, 4)
    death = Death(50, frozenset({QUEUE}), {QUEUE: 6})
    assert judge(journal, [death], [], 12) == Verdict(0, 4, 4, 0)
    elsewhere = Death(50, frozenset({(0, 1)}), {QUEUE: 6})
    assert judge(journal, [elsewhere], [], 12) == Verdict(0, 4, 0, 4)
    committed = Death(50, frozenset({QUEUE}), {QUEUE: 8})
    assert judge(journal, [committed], [], 12) == Verdict(0, 4, 2, 2)


def test_a_coordinator_that_dies_after_a_member_forgets_what_it_had_not_saved() -> None:
    journal = {"a": run(0, range(10)), "b": run(100, range(2, 12))}
    death = Death(50, frozenset({QUEUE}), {QUEUE: 8})
    assert judge(journal, [death], [(60, {QUEUE: 2})], 12) == Verdict(0, 8, 8, 0)
    for at_ns in (40, 200):  # the member was there to say it again, or its heir had begun
        assert judge(journal, [death], [(at_ns, {QUEUE: 2})], 12).unexplained == 6


def test_one_that_was_stopped_may_hand_out_what_it_had_in_hands_and_no_more() -> None:
    journal = {"a": [*run(0, range(4)), *run(200, range(4, 7))], "b": run(100, range(4, 9))}
    stopped = Death(50, frozenset({QUEUE}), {QUEUE: 4}, in_hands=2)
    assert judge(journal, [stopped], [], 9) == Verdict(0, 3, 2, 1)


def test_a_message_that_was_sent_back_twice_needs_a_reason_too() -> None:
    failed = [Entry(0, *QUEUE, 0, 0, Outcome.SENT_BACK)]
    retries = [Entry(10 + n, 1, 0, n, 0, Outcome.DONE) for n in range(2)]
    assert judge({"a": failed + retries}, [], [], 1).unexplained == 1
    again = {"a": failed, "b": [Entry(5, *QUEUE, 0, 0, Outcome.SENT_BACK), *retries]}
    assert judge(again, [Death(3, frozenset({QUEUE}), {})], [], 1) == Verdict(0, 1, 1, 0)


def test_order_is_broken_by_a_message_that_passes_another() -> None:
    assert out_of_order({"a": [*run(0, range(3)), *run(10, range(4, 6))]}) == 1
    assert out_of_order({"a": run(0, range(3)), "b": run(10, range(4, 5))}) == 1
    assert out_of_order({"a": [*run(0, range(3)), *run(10, range(2, 4))]}) == 0, "it came again"


def test_attempts_in_place_keep_the_order_and_passing_a_failed_one_does_not() -> None:
    failed = run(5, range(3, 4), Outcome.TRIED)
    assert out_of_order({"a": [*run(0, range(3)), *failed, *run(10, range(3, 6))]}) == 0
    assert out_of_order({"a": [*run(0, range(3)), *failed, *run(10, range(4, 6))]}) == 1


def test_a_chronicle_says_who_had_what_again() -> None:
    journal = {"a": run(10**9, range(4)), "b": run(3 * 10**9, range(2, 6))}
    death = Death(2 * 10**9, frozenset({QUEUE}), {QUEUE: 3})
    assert chronicle(journal, [death], [(25 * 10**8, {QUEUE: 1})]).splitlines() == [
        "    1.000 until 1.000 a has 0 to 3 of (0, 0), 0 of them again",
        "    2.000 end of who had [(0, 0)] {(0, 0): 3}",
        "    2.500 the coordinator ends, which saved {(0, 0): 1}",
        "    3.000 until 3.000 b has 2 to 5 of (0, 0), 2 of them again",
    ]
