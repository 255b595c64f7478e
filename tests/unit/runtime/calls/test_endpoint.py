"""Calls of typed interfaces: what is called, what is refused, and which ones wait."""

from __future__ import annotations

from typing import Any, Protocol

import pytest

from rocketray.runtime.calls.endpoint import (
    Endpoint,
    InProcess,
    ServedObjects,
    client_of,
    does_wait,
    is_once,
    method_of,
    once,
    waits,
)


class CounterApi(Protocol):
    def add(self, count: int, *, twice: bool = False) -> int: ...

    @once
    def count(self) -> int: ...

    @waits
    def wait(self) -> None: ...

    def _hidden(self) -> None: ...


class Counter:
    def __init__(self) -> None:
        self.total = 0

    def add(self, count: int, *, twice: bool = False) -> int:
        self.total += 2 * count if twice else count
        return self.total

    def count(self) -> int:
        return self.total

    def wait(self) -> None:
        raise TimeoutError

    def _hidden(self) -> None: ...

    def reset(self) -> None:
        self.total = 0


COUNTER = Endpoint("counter", CounterApi)


@pytest.fixture
def counter() -> Counter:
    return Counter()


@pytest.fixture
def served(counter: Counter) -> ServedObjects:
    served = ServedObjects()
    served.serve(CounterApi, lambda: counter)
    return served


def test_a_call_reaches_the_object_and_its_result_or_error_comes_back(
    served: ServedObjects, counter: Counter
) -> None:
    client = client_of(InProcess(served), COUNTER)
    assert client.add(2) == 2
    assert client.add(2, twice=True) == counter.total == 6
    with pytest.raises(TimeoutError):
        client.wait()


@pytest.mark.parametrize(
    "method", ["reset", "total", "_hidden", "__init__", "__class__", "ad", "register"]
)
def test_only_public_methods_of_the_interface_are_called(
    served: ServedObjects, method: str
) -> None:
    with pytest.raises(AttributeError, match=f"CounterApi has no method '{method}'"):
        served.call("CounterApi", (), method)
    client: Any = client_of(InProcess(served), COUNTER)
    if not method.startswith("__"):
        with pytest.raises(AttributeError, match=method):
            getattr(client, method)


def test_an_interface_that_is_not_served_is_an_error(served: ServedObjects) -> None:
    with pytest.raises(AttributeError, match="no object here serves Counter"):
        served.call("Counter", (), "add", 1)


def test_an_interface_says_which_methods_wait_or_are_not_repeated() -> None:
    methods = [method_of(CounterApi, name) for name in ("add", "wait", "count")]
    assert [does_wait(method) for method in methods] == [False, True, False]
    assert [is_once(method) for method in methods] == [False, False, True]


def test_a_key_says_which_object_of_the_actor_is_called() -> None:
    served, counters = ServedObjects(), {"a": Counter(), "b": Counter()}
    served.serve(CounterApi, counters.__getitem__)
    transport = InProcess(served)
    first, second = (Endpoint("counters", CounterApi, (key,)) for key in "ab")
    client_of(transport, second).add(3)
    assert transport.call_each([second, first], CounterApi.count) == [3, 0]
    assert transport.call_each([first, second], CounterApi.add, 1, twice=True) == [2, 5]
    with pytest.raises(KeyError):
        client_of(transport, Endpoint("counters", CounterApi, ("c",))).count()
