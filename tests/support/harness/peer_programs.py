"""What the programs of benchmarks/python_peers.py share: the messages, the clocks, the answers.

Only the standard library is imported: programs of another environment use it, too.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from .asked_process import answer_all, answers_apart

_WARM_UP = 256
_TURN_S = 120
_FILLING = b"\0" * 88  # a body has 100 bytes
_PAD = "x" * 13  # and so has an order


def order_body(number: int) -> bytes:
    """The body of a message."""
    return b"%012d" % number + _FILLING


def order_json(number: int) -> bytes:
    """The body of an order, as :func:`customer` placed it."""
    order = {
        "order_id": f"{number:08}{_PAD}",
        "customer": customer(number),
        "region": f"region-{number % 10}",
        "amount": number % 1000 + 0.5,
    }
    return json.dumps(order, separators=(",", ":")).encode()


def customer(number: int) -> str:
    """The key of an order."""
    return f"customer-{number % 1000:03}"


@dataclass(slots=True)
class Pace:
    """The clocks of a program: from the first of *count* messages until ``end``.

    Processor time is that of all threads of the process.
    """

    count: int
    begun: Callable[[], object]
    done: Callable[[], object] = lambda: None
    """Called with the last message."""
    seen: int = 0
    first: int = 0
    """Messages of the first list, read before the clock of the wall begins: not among those *seen*."""
    wall_s: float = 0.0
    processor_s: float = 0.0

    def subscribe(self) -> None:
        """Start the clock of the processor: what a reader fetches before the first message counts."""
        self.begun()
        self.processor_s = time.process_time()

    def begin(self) -> None:
        """Start the clocks that stand, at the first call."""
        if not self.wall_s:
            if not self.processor_s:
                self.subscribe()
            self.wall_s = time.perf_counter()

    def passed(self, value: Any) -> Any:
        """Start the clocks with a value that has further to go; return it."""
        self.begin()
        return value

    def one(self) -> None:
        """Count a message that was received."""
        if not self.seen:
            self.begin()
        self.seen += 1
        if self.seen == self.count:
            self.done()

    def read(self, messages: int) -> None:
        """Count a list that was read."""
        if self.wall_s:
            self.seen += messages
        else:
            self.first = messages
            self.begin()

    def numbers(self, step: int = 1) -> Iterator[int]:
        """Yield the number of each message to send, or of the first of each *step*.

        The clocks start behind some that warm up.
        """
        yield from range(0, _WARM_UP, step)
        self.begin()
        measured = range(0, self.count, step)
        yield from measured
        self.seen = len(measured) * step

    def end(self) -> None:
        """Stop the clocks."""
        self.processor_s = time.process_time() - self.processor_s
        self.wall_s = time.perf_counter() - self.wall_s


def measured_sends(pace: Pace, send: Callable[[int], object]) -> dict[str, float]:
    """Send messages one by one; return the median time that one takes."""
    took, clock = [], time.perf_counter_ns
    for number in pace.numbers():
        begun = clock()
        send(number)
        took.append(clock() - begun)
    measured = sorted(took[-pace.count :])
    return {"p50_us": measured[len(measured) // 2] / 1e3}


def answer_turns(ways: Mapping[str, Callable[[str, Pace], Any]], place: str) -> None:
    """Answer each question with a turn of one of *ways* at *place*, until stdin ends.

    A turn that takes too long ends the process by SIGALRM, whatever the turn waits for.
    """
    output = answers_apart()

    def turn(way: str, count: int) -> dict[str, Any]:
        pace = Pace(count, partial(print, ">", file=output, flush=True))
        signal.alarm(_TURN_S)
        more = ways[way](place, pace)
        signal.alarm(0)
        counts = {"seen": pace.seen, "first": pace.first}
        return counts | {"seconds": pace.wall_s, "processor_s": pace.processor_s} | (more or {})

    answer_all({"turn": turn}.__getitem__, output)
