"""What waits for a member elsewhere, with replies and answers that are lost or come late."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from support.machines import run_histories

from rocketray.actors.remote.backlog import Backlog, Taken

QUEUES = st.integers(0, 2)


class Backlogs(RuleBasedStateMachine):
    """The model is what each queue's owner may still get, in order, since it was last revoked."""

    def __init__(self) -> None:
        super().__init__()
        self.backlog = Backlog()
        self.made = 0
        self.expected: dict[int, list[bytes]] = {queue: [] for queue in range(3)}
        self.in_reply: Taken | None = None  # made, and it did not arrive yet
        self.received = 0
        self.revoked: frozenset[int] = frozenset()
        self.revocations = 0

    @precondition(lambda self: self.backlog.wait_for_room(0))
    @rule(queue_id=QUEUES)
    def put(self, queue_id: int) -> None:
        if queue_id not in self.revoked:  # while the owner gives it up, nothing comes
            self.made += 1
            frame = b"%d:%d" % (queue_id, self.made)
            self.backlog.put(queue_id, frame)
            self.expected[queue_id].append(frame)

    @rule(arrives=st.booleans())
    def poll(self, arrives: bool) -> None:
        taken = self.backlog.take(self.received, 0)
        if self.in_reply is not None:
            assert taken == self.in_reply, "a reply that was lost comes again"
        self.in_reply = taken
        if not arrives:
            return
        assert taken.number == self.received + 1
        self.received, self.in_reply = taken.number, None
        for frame in taken.frames:
            queue_id = int(frame.split(b":")[0])
            is_from_before = taken.revocation.number < self.revocations
            if not is_from_before or frame in self.expected[queue_id]:
                assert frame == self.expected[queue_id].pop(0)

    @precondition(lambda self: not self.revoked)
    @rule(queue_ids=st.frozensets(QUEUES, min_size=1))
    def revoke(self, queue_ids: frozenset[int]) -> None:
        self.backlog.revoke(queue_ids)
        self.revoked = queue_ids
        self.revocations += 1
        for queue_id in queue_ids:
            self.expected[queue_id] = []
        assert self.backlog.revocation == (self.revocations, queue_ids)
        if self.in_reply is None:
            arrived = self.backlog.take(self.received, 60)  # it waits for nothing
            self.in_reply = arrived
            assert arrived.revocation == (self.revocations, queue_ids)

    @rule(late=st.integers(0, 2))
    def give_up(self, late: int) -> None:
        """An answer to this revocation, or to an earlier one."""
        self.backlog.given_up(self.revocations - late)
        if late == 0:
            assert self.backlog.wait_until_given_up(0)
            self.revoked = frozenset()
        else:
            assert self.backlog.revocation.queue_ids == self.revoked

    @precondition(lambda self: self.revoked)
    @rule()
    def time_is_over(self) -> None:
        assert not self.backlog.wait_until_given_up(0)
        self.revoked = frozenset()
        self.backlog.given_up(self.revocations)

    @rule()
    def all_that_waits_comes_in_the_end(self) -> None:
        for _ in range(2):
            self.poll(arrives=True)
        assert not any(self.expected.values())
        assert self.backlog.wait_for_room(0)


def test_what_waits_for_a_remote_member(seed: int) -> None:
    run_histories(Backlogs, seed, 150, 30)
