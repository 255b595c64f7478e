"""A link to a real Arrow Flight server: answers, errors, and a service that was lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest
from support.harness.patience import patience
from support.nodes.watched_proxy import unused_proxy

from rocketray.broker.fetching.flight_calls import Answer, FlightCalls, SentBatch, Served
from rocketray.broker.fetching.flight_link import FlightLink
from rocketray.broker.fetching.range_service import RangeService
from rocketray.broker.fetching.read_plan import DiskPlace, FetchService
from rocketray.errors import ConfigError, PredicateError, ShardUnavailableError, StreamError
from rocketray.runtime.calls.endpoint import Endpoint, bulk, client_of
from rocketray.runtime.files.home import Home
from rocketray.runtime.files.paths import fetch_service_file

pytestmark = pytest.mark.proves(
    "groups",
    "A link finds a fetch service again that was killed, or that has another token; calls "
    "that wait hold up no others",
)

HOST = "127.0.0.1"
WAITING = 200


class EchoApi(Protocol):
    def echo(self, said: bytes) -> bytes: ...

    @bulk(20.0)
    def stream(self, said: bytes) -> list[memoryview]: ...

    @bulk(50.0)
    def wait(self, said: bytes) -> list[memoryview]: ...


class OtherApi(Protocol):
    def echo(self, said: bytes) -> bytes: ...


ECHO = Endpoint("gateway", EchoApi)


class Echo:
    """A service whose calls return their request; it is asked for its place as over Ray."""

    def __init__(self, home: Home, *, has_tls: bool = False) -> None:
        self._home, self._has_tls = home, has_tls
        self.looks = 0
        self.go_on = threading.Event()
        self.waiting = threading.Semaphore(0)
        self.actions: list[bytes] = []
        self.ranges = self._new()

    def place(self) -> DiskPlace:
        self.looks += 1
        return self.ranges.place()

    def start_again(self) -> None:
        """As its process does after it was killed."""
        self.ranges.close()
        self.ranges = self._new()
        self.ranges.service.open_again()

    def service(self) -> FetchService:
        found = self.ranges.place().service
        assert found is not None
        return found

    def _new(self) -> RangeService:
        calls = FlightCalls([Served(EchoApi, self)])
        return RangeService(self._home, HOST, has_tls=self._has_tls, others=calls)

    def echo(self, said: bytes) -> bytes:
        self.actions.append(said)
        if said == b"fail":
            raise PredicateError("no module 'x'")
        if said == b"missing":
            raise FileNotFoundError(2, "No such file", "log/000")
        if said == b"bug":
            raise KeyError("a fault")
        return said[::-1]

    def stream(self, said: bytes) -> list[memoryview]:
        return [memoryview(said)] * 2

    def wait(self, said: bytes) -> list[memoryview]:
        self.waiting.release()
        assert self.go_on.wait(patience(60))
        return self.stream(said)


@pytest.fixture(params=["without TLS", "with TLS"])
def echo(request: pytest.FixtureRequest, home: Home) -> Iterator[Echo]:
    found = Echo(home, has_tls=request.param == "with TLS")
    yield found
    found.go_on.set()
    found.ranges.close()


@pytest.fixture
def link(echo: Echo) -> EchoApi:
    return client_of(FlightLink(echo), ECHO)


def test_calls_are_answered_and_the_place_is_asked_for_once(echo: Echo, link: EchoApi) -> None:
    assert echo.looks == 0
    for request in (b"x", b"a b", bytes(range(256))):
        assert link.echo(request) == request[::-1]
        assert link.stream(request) == [request, request]
    assert echo.looks == 1


def test_no_call_goes_to_the_proxy_of_the_environment(
    link: EchoApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    with unused_proxy(monkeypatch):
        assert link.echo(b"xy") == b"yx"
        assert link.stream(b"x") == [b"x", b"x"]


def test_errors_of_the_service_are_raised_as_they_were_and_nothing_is_repeated(
    echo: Echo, link: EchoApi
) -> None:
    with pytest.raises(PredicateError, match="no module 'x'"):
        link.echo(b"fail")
    with pytest.raises(FileNotFoundError) as caught:
        link.echo(b"missing")
    assert caught.value.filename == "log/000"
    assert echo.actions == [b"fail", b"missing"]
    assert echo.looks == 1
    other = client_of(FlightLink(echo), Endpoint("gateway", OtherApi))
    with pytest.raises(ConfigError, match=r"no call 'OtherApi\.echo': it is of another version"):
        other.echo(b"")


def test_a_fault_of_the_service_is_told_and_its_log_has_the_traceback(
    echo: Echo, link: EchoApi, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(StreamError, match=r"at 'EchoApi.echo': KeyError\('a fault'\); its log has"):
        link.echo(b"bug")
    assert echo.actions == [b"bug"], "the call is not repeated"
    assert "Traceback" in caplog.text


def test_a_stream_that_ends_with_a_fault_is_an_error(
    echo: Echo, link: EchoApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Answer.batches

    def half(answer: Answer) -> Iterator[SentBatch]:
        yield next(whole(answer))
        raise ValueError("half of it")

    monkeypatch.setattr(Answer, "batches", half)
    with pytest.raises(StreamError) as caught:
        link.stream(b"x")
    assert f"at {HOST} port {echo.service().port} failed: half of it" in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_a_service_that_was_killed_is_the_same_one_and_a_call_finds_it(
    echo: Echo, link: EchoApi
) -> None:
    link.echo(b"x")
    before = echo.service()
    echo.start_again()
    assert link.echo(b"ab") == b"ba"
    assert echo.service() == before
    fetch_service_file(Path(echo._home.data)).unlink()  # with the machine
    echo.start_again()
    assert link.stream(b"ab") == [b"ab", b"ab"]
    assert echo.service().token != before.token


def test_a_stream_that_waits_when_the_service_is_lost_is_called_again(
    echo: Echo, link: EchoApi
) -> None:
    with ThreadPoolExecutor(1) as threads:
        waits = threads.submit(link.wait, b"a")
        assert echo.waiting.acquire(timeout=patience(60))
        lost = threading.Thread(target=echo.start_again)
        lost.start()  # it ends the call: with its answer, or without
        echo.go_on.set()
        assert waits.result(patience(60)) == [b"a", b"a"]
        lost.join()


def test_a_call_waits_for_the_spare_and_does_not_ask_where_it_is(echo: Echo, link: EchoApi) -> None:
    """To ask would wait for a process that starts."""
    assert link.echo(b"x") == b"x"
    echo.ranges.close()
    with ThreadPoolExecutor(1) as threads:
        called = threads.submit(link.echo, b"ab")
        time.sleep(0.3)
        echo.start_again()
        assert called.result(patience(60)) == b"ba"
    assert echo.looks == 1


def test_a_service_that_is_not_there_is_named(
    home: Home, echo: Echo, link: EchoApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = echo.ranges.place()
    echo.ranges.close()
    monkeypatch.setattr(echo.ranges, "place", lambda: place)
    port = place.service and place.service.port
    with pytest.raises(ShardUnavailableError, match=f"at {HOST} port {port} is unavailable"):
        link.echo(b"x")
    assert echo.looks == 3, "each attempt asks where it is"


def test_a_wrong_token_is_refused(
    echo: Echo, link: EchoApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged = replace(echo.ranges.place(), service=replace(echo.service(), token="forged"))
    monkeypatch.setattr(echo.ranges, "place", lambda: forged)
    with pytest.raises(ShardUnavailableError, match="the token is not that of this service"):
        link.echo(b"x")
    assert echo.actions == []


def test_calls_that_wait_keep_no_other_call_waiting(echo: Echo, link: EchoApi) -> None:
    """As many as there may be sessions: each has a thread of its own."""
    with ThreadPoolExecutor(WAITING) as threads:
        waits = [threads.submit(link.wait, b"a") for _ in range(WAITING)]
        for _ in range(WAITING):
            assert echo.waiting.acquire(timeout=patience(60))
        assert link.echo(b"ab") == b"ba"
        assert not any(each.done() for each in waits)
        echo.go_on.set()
        assert [each.result(patience(60)) for each in waits] == [[b"a", b"a"]] * WAITING
