"""Functions that run in a fork of the test's process, which ends as a program does."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from support.harness.patience import wait_until

ResultT = TypeVar("ResultT")


def in_fork(run: Callable[[], ResultT]) -> ResultT:
    """Return what *run* returns in a fork of this process, or raise what it raises there."""
    return begin_in_fork(run)()


def begin_in_fork(run: Callable[[], ResultT]) -> Callable[[], ResultT]:
    """Begin *run* in a fork, and return what waits for its outcome.

    Before the fork ends it joins its threads and runs our finalizers that it inherited: it has to
    end by itself. Those of libraries, which earlier tests have used, may wait in a fork for threads
    that are not there: that of Arrow Flight's server does.
    """
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.close(reads)
        _answer(run, writes)
    os.close(writes)
    return partial(_outcome, child, reads)


def _is_ours(owner: object, finalizer: object) -> bool:
    """Whether our code registered *finalizer*, and not a library for an object of ours."""
    is_of_flight = type(getattr(finalizer, "__self__", None)).__module__ == "pyarrow._flight"
    return type(owner).__module__.startswith("rocketray.") and not is_of_flight


def _outcome(child: int, reads: int) -> Any:
    with os.fdopen(reads, "rb") as file:
        answer = file.read()
    ended: list[int] = []

    def has_ended() -> bool:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            ended.append(os.waitstatus_to_exitcode(status))
        return bool(found)

    wait_until(has_ended, lambda: f"process {child}, a fork, does not end")
    assert ended == [0], (ended, answer)
    result = pickle.loads(answer)
    if isinstance(result, BaseException):
        raise result
    return result


def _answer(run: Callable[[], object], writes: int) -> None:
    """Run it, write the outcome, and end."""
    code = 1
    try:
        try:
            outcome: object = run()
        except BaseException as error:  # noqa: BLE001 - the parent raises it
            outcome = error
        with os.fdopen(writes, "wb") as file:
            file.write(pickle.dumps(outcome))
        threading._shutdown()  # type: ignore[attr-defined]
        for each in [*weakref.finalize._registry]:  # type: ignore[attr-defined]
            if (alive := each.peek()) and _is_ours(*alive[:2]):
                each()
        code = 0
    except BaseException:  # noqa: BLE001 - the forked process has no caller
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
