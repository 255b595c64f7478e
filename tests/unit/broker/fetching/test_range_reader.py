"""Ranges from the files of a queue, and the same ones from a fetch service."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import flight
from support.nodes.shards import Shards
from support.nodes.watched_proxy import unused_proxy

from rocketray.broker.fetching import range_client, range_reader
from rocketray.broker.fetching.flight_calls import write_request
from rocketray.broker.fetching.flight_client import call_options, ticket_of
from rocketray.broker.fetching.range_reader import BATCH_BYTES, cut_batches
from rocketray.broker.fetching.range_request import RANGE
from rocketray.broker.fetching.range_service import RangeService
from rocketray.broker.fetching.read_plan import Bounds, DiskPlace, Range, ReadPlan
from rocketray.broker.fetching.reading import read_part
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.errors import ConfigError, PredicateError, ShardUnavailableError, StoreError
from rocketray.filters.subscription import Subscription
from rocketray.message import Message
from rocketray.runtime.files.home import Home
from rocketray.runtime.files.paths import fetch_service_file
from rocketray.runtime.files.private_files import open_to_others

pytestmark = pytest.mark.proves(
    "spark",
    "Fetched ranges are those of the files, with and without TLS; a fetch that breaks off "
    "continues where it came to; a call without the token is refused",
)

KEY = ("Trade", 0)
HOST = "127.0.0.1"


@pytest.fixture
def shards(tmp_path: Path) -> Iterator[Shards]:
    with Shards(tmp_path, Trade=1) as written:
        yield written


@pytest.fixture(params=["files", "service", "service with TLS"])
def place(request: pytest.FixtureRequest, home: Home) -> Iterator[DiskPlace]:
    if request.param == "files":
        yield DiskPlace(Path(home.data))
        return
    service = RangeService(home, HOST, has_tls="TLS" in request.param)
    try:
        yield as_elsewhere(service)
    finally:
        service.close()


def as_elsewhere(service: RangeService) -> DiskPlace:
    return replace(service.look([]).place, data=Path("/not/here"))


def plan(
    subscription: Subscription | None = None,
    columns: tuple[str, ...] = ("queueOffset",),
    **changes: Any,
) -> ReadPlan:
    given: dict[str, Any] = {"batch_rows": 1000, "fail_on_data_loss": True} | changes
    chosen = subscription or Subscription.tags("*")
    return ReadPlan(chosen, columns, **given)


def no_warning(line: str) -> None:
    raise AssertionError(line)


def offsets(
    place: DiskPlace,
    plan: ReadPlan,
    start: int,
    stop: int,
    warn: Callable[[str], None] = no_warning,
) -> list[list[int]]:
    batches = read_part(place, plan, Range(KEY, start, stop), warn)
    return [batch.column(0).to_pylist() for batch in batches]


@pytest.mark.proves("spark", "The option `arrowBatchRows`")
def test_a_range_is_read_in_batches(shards: Shards, place: DiskPlace) -> None:
    shards.fill("Trade", 0, 250)

    batches = offsets(place, plan(batch_rows=100), 5, 240)

    assert batches == [[*range(5, 105)], [*range(105, 205)], [*range(205, 240)]]


def test_no_range_is_read_through_the_proxy_of_the_environment(
    shards: Shards, place: DiskPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards.fill("Trade", 0, 3)

    with unused_proxy(monkeypatch):
        assert offsets(place, plan(), 0, 3) == [[0, 1, 2]]


def test_nothing_is_handed_out_where_nothing_matches(shards: Shards, place: DiskPlace) -> None:
    shards.fill("Trade", 0, 20)

    assert offsets(place, plan(Subscription.tags("nobody")), 0, 20) == []
    assert offsets(place, plan(Subscription.tags(" || ")), 0, 20) == []
    assert offsets(place, plan(Subscription.sql("a > 100")), 0, 20) == []


def test_tags_with_one_code_are_told_apart(shards: Shards, place: DiskPlace) -> None:
    shards.fill("Trade", 0, 20)  # Aa is the fourth of five tags, BB the fifth

    assert offsets(place, plan(Subscription.tags("Aa")), 0, 20) == [[3, 8, 13, 18]]
    assert offsets(place, plan(Subscription.tags("BB||Aa")), 0, 10) == [[3, 4, 8, 9]]


def test_an_expression_without_properties_holds_for_all_or_none(
    shards: Shards, place: DiskPlace
) -> None:
    shards.fill("Trade", 0, 3)

    assert offsets(place, plan(Subscription.sql("1 = 1")), 0, 3) == [[0, 1, 2]]
    assert offsets(place, plan(Subscription.sql("1 = 2")), 0, 3) == []


@pytest.mark.proves("spark", "The option `sql`")
def test_failed_evaluations_are_counted_in_one_line(shards: Shards, place: DiskPlace) -> None:
    shards.append([Message("Trade", b"", properties={"a": text}) for text in "1x2x"], 0)

    said: list[str] = []
    assert offsets(place, plan(Subscription.sql("a > 0")), 0, 4, said.append) == [[0, 2]]

    assert len(said) == 1
    assert "topic Trade queue 0: sql 'a > 0' failed on 2 of the messages 0 to 3" in said[0]


def test_messages_deleted_since_the_plan_are_an_error_or_skipped(
    shards: Shards, place: DiskPlace
) -> None:
    shards.fill("Trade", 0, 20)
    shards.delete_before("Trade", 0, 8)

    with pytest.raises(StoreError, match="messages 4 to 7 were deleted"):
        offsets(place, plan(), 4, 10)
    said: list[str] = []
    assert offsets(place, plan(fail_on_data_loss=False), 4, 10, said.append) == [[8, 9]]
    assert offsets(place, plan(fail_on_data_loss=False), 4, 7, said.append) == []
    assert ["messages 4 to 7 were deleted" in line for line in said] == [True, True]


def test_messages_deleted_while_they_are_read_are_an_error_or_skipped(
    tmp_path: Path, shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_reader, "_TAG_BLOCK_ENTRIES", 1000)
    shards.fill("Trade", 0, 2500)
    place, part, said = DiskPlace(tmp_path), Range(KEY, 0, 2500), list[str]()
    failing = read_part(place, plan(), part, no_warning)
    going_on = read_part(place, plan(fail_on_data_loss=False), part, said.append)
    read = [part.column(0).to_pylist() for part in (next(failing), next(going_on))]
    first = shards.expire("Trade", 0)
    with pytest.raises(StoreError, match=f"messages .* to {first - 1} were deleted"):
        list(failing)
    rest = [number for batch in going_on for number in batch.column(0).to_pylist()]
    assert read[0] == read[1] == list(range(1000))
    assert rest == list(range(first, 2500))


@pytest.mark.proves("spark", "The option `arrowBatchRows`")
def test_a_batch_has_a_limit_in_bytes() -> None:
    sizes = np.array([3, 3, 3, 20, 1, 1], np.int32)

    assert [(part.start, part.stop) for part in cut_batches(sizes, 10, 7)] == [
        (0, 2),
        (2, 3),
        (3, 4),
        (4, 6),
    ]
    assert list(cut_batches(np.empty(0, np.int32), 10, 7)) == []
    assert BATCH_BYTES > 4 * 1024 * 1024  # the largest message fits a batch with others


def test_doubts_about_the_filter_are_told_with_the_first_range(
    shards: Shards, place: DiskPlace
) -> None:
    shards.fill("Trade", 0, 20)
    said: list[str] = []
    wanted = plan(Subscription.tags("aA"))
    assert list(read_part(place, wanted, Range(KEY, 0, 20), said.append, is_first=True)) == []
    assert len(said) == 1
    assert "'aA'" in said[0]


def test_bounds_are_those_of_open_shards_and_never_a_guess(shards: Shards, home: Home) -> None:
    shards.fill("Trade", 0, 7)
    shards.delete_before("Trade", 0, 3)
    service = RangeService(home, HOST)
    try:
        assert service.look([KEY]).bounds == {KEY: Bounds(3, 7)}
        with pytest.raises(ShardUnavailableError, match="Trade/1 is unavailable: it is not open"):
            service.look([KEY, ("Trade", 1)])
    finally:
        service.close()


def test_a_reader_continues_with_the_service_that_was_started_again(
    shards: Shards, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_reader, "BATCH_BYTES", 200_000)
    for _ in range(400):  # more than is in flight
        shards.append([Message("Trade", b"x" * 50_000)], 0)
    first = RangeService(home, HOST)
    place = as_elsewhere(first)
    batches = read_part(
        place, plan(columns=("queueOffset", "body")), Range(KEY, 0, 400), no_warning
    )
    read = next(batches).column(0).to_pylist()
    second: list[RangeService] = []

    def start_again() -> None:
        first.close()
        second.append(RangeService(home, HOST))
        assert second[0].look([]).place.service == place.service

    again = threading.Thread(target=start_again)
    again.start()
    for batch in batches:
        read += batch.column(0).to_pylist()
    again.join()
    second[0].close()
    assert read == list(range(400))
    assert open_to_others(fetch_service_file(Path(home.data))) == 0


def test_a_service_whose_address_cannot_be_kept_serves_and_says_so(
    shards: Shards, home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    shards.fill("Trade", 0, 3)
    fetch_service_file(Path(home.data)).mkdir()  # where the file has to be
    service = RangeService(home, HOST)
    try:
        assert offsets(as_elsewhere(service), plan(), 0, 3) == [[0, 1, 2]]
    finally:
        service.close()
    assert "will have another address and token" in caplog.text


def test_a_call_without_the_token_or_to_nobody_is_refused(
    shards: Shards, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_client, "_WAITS_S", (0.01,))
    shards.fill("Trade", 0, 20)
    service = RangeService(home, HOST)
    place = as_elsewhere(service)
    assert place.service is not None
    forged = replace(place, service=replace(place.service, token="forged"))
    with pytest.raises(ShardUnavailableError, match="it refuses the token"):
        offsets(forged, plan(), 0, 20)
    assert offsets(place, plan(), 0, 20) == [list(range(20))]
    service.close()
    gone = (
        f"disk {home.uuid}, /not/here on elsewhere, at {HOST} port {place.service.port}, does not"
    )
    with pytest.raises(ShardUnavailableError, match=gone):
        offsets(place, plan(), 0, 20)


def test_a_queue_that_is_not_there_any_more_is_named(shards: Shards, home: Home) -> None:
    service = RangeService(home, HOST)
    try:
        with pytest.raises(StoreError, match="topic 'Trade' queue 7 is not on disk"):
            list(read_part(as_elsewhere(service), plan(), Range(("Trade", 7), 0, 3), no_warning))
    finally:
        service.close()


@pytest.mark.proves("spark", "The option `where`")
@pytest.mark.parametrize("name", ["is_even", "are_even"])
def test_a_predicate_runs_beside_the_files_if_the_operator_allowed_it(
    name: str, shards: Shards, home: Home
) -> None:
    bodies = [b"1", b"2", b"6", b"none"]
    shards.append([Message("Trade", body) for body in bodies], 0)
    data, path = Path(home.data), f"support.predicates:{name}"
    asked = plan(Subscription.where(path), ("body",))

    def read(stop: int, place: DiskPlace | None = None) -> list[bytes]:
        batches = read_part(place or DiskPlace(data), asked, Range(KEY, 0, stop), no_warning)
        return [body for batch in batches for body in batch.column("body").to_pylist()]

    with pytest.raises(PredicateError, match="is not allowed on this node"):
        read(3)
    FilterRules(("support.predicates",)).save(data)
    assert read(3) == [b"2", b"6"]
    with pytest.raises(PredicateError, match=name):
        read(4)

    service = RangeService(home, HOST)
    try:
        with pytest.raises(ConfigError, match="where runs only beside the files; filter by tags"):
            read(3, as_elsewhere(service))
    finally:
        service.close()


FAR_PLAN = [["TAG", "*", "stop", None, None, ""], ["body"], 10, True]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (b"", "this is no request"),
        (b"{}", "of type list; the client is of release None"),
        (b" " * (1 << 20) + b"1", "a request of 1048577 bytes"),
        (None, "this is no ticket for a range"),
        ([], "this is no ticket for a range: 0 values, and not 3"),
        ([FAR_PLAN, [["../up", 0], 0, 3], False], "'../up'"),
        ([FAR_PLAN, [[7, 0], 0, 3], False], "7 is not of type str"),
        ([FAR_PLAN, [["Trade", -1], 0, 3], False], "-1 is no number from 0"),
        ([FAR_PLAN, [["Trade", 0], 9, 3], False], "a range from 9 to 3"),
        ([FAR_PLAN, [["Trade", 0], 0, True], False], "True is no number"),
        ([FAR_PLAN, [["Trade", 0], 0, 3], 1], "1 is not of type bool"),
        ([[FAR_PLAN[0], ["secret"], 10, True], [["Trade", 0], 0, 3], False], "no column 'secret'"),
        ([[FAR_PLAN[0], [], 10**9, True], [["Trade", 0], 0, 3], False], "1000000000 is no number"),
        ([[FAR_PLAN[0], [], 0, True], [["Trade", 0], 0, 3], False], "0 is no number from 1 to"),
        (
            [[["SQL92", "a >", "stop", None, None, ""], [], 9, True], [["T", 0], 0, 3], False],
            "a >",
        ),
        (
            [
                [["CLASS", "os:remove", "stop", None, None, ""], [], 9, True],
                [["T", 0], 0, 3],
                False,
            ],
            "by tags or sql",
        ),
    ],
)
def test_a_ticket_that_is_none_reads_nothing(
    given: Any, said: str, shards: Shards, home: Home
) -> None:
    ticket = given if isinstance(given, bytes) else write_request(given)
    shards.fill("Trade", 0, 3)
    service = RangeService(home, HOST)
    try:
        place = service.look([]).place
        assert place.service is not None
        reader_of = range_client._client(place.service)
        options = call_options(place.service)
        with pytest.raises(flight.FlightServerError, match=re.escape(said)):
            reader_of.do_get(ticket_of(RANGE, ticket), options).read_all()
    finally:
        service.close()
