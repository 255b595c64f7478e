from __future__ import annotations

import datetime as dt
import os
import struct
import time
from ipaddress import ip_address
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.nodes.stores import FakeClock

from rocketray.errors import ConfigError
from rocketray.store.formats import unique_id
from rocketray.store.formats.message_id import decode_offset_id, encode_offset_id
from rocketray.store.formats.unique_id import UniqueIdGenerator

NOW_MS = 1_700_000_000_123


def generator(clock: FakeClock, address: str = "10.1.2.3") -> UniqueIdGenerator:
    return UniqueIdGenerator(address, 70_000, 0xDEADBEEF, clock_ms=clock)


class UniqueId(NamedTuple):
    """The parts of a unique id, read by its description alone."""

    address: str
    process_id: int
    generator: int
    month_ms: int
    counter: int

    def created_ms(self, now_ms: int) -> int:
        """Its creation time, if that was less than a month before *now_ms*."""
        month = dt.datetime.fromtimestamp(now_ms // 1000).replace(day=1)  # noqa: DTZ006 - local
        for first in (month, (month - dt.timedelta(days=1)).replace(day=1)):
            start_ms = round(first.replace(hour=0, minute=0, second=0).timestamp() * 1000)
            if start_ms + self.month_ms <= now_ms:
                break
        return start_ms + self.month_ms


def decode_unique_id(text: str) -> UniqueId:
    raw = bytes.fromhex(text)
    assert text == raw.hex().upper()
    return UniqueId(str(ip_address(raw[:-12])), *struct.unpack(">HIIH", raw[-12:]))


def test_an_offset_id_is_host_port_and_offset() -> None:
    text = encode_offset_id(("10.0.0.1", 10_911), 1000)
    assert text == "0A00000100002A9F00000000000003E8"
    parts = decode_offset_id(text.lower())
    assert (parts.store_host, parts.physical_offset) == (("10.0.0.1", 10_911), 1000)


def test_an_ipv6_offset_id_has_56_digits() -> None:
    text = encode_offset_id(("fd00::1", 1), 2**40)
    assert len(text) == 56
    assert decode_offset_id(text).store_host == ("fd00::1", 1)
    assert decode_offset_id(text).physical_offset == 2**40


@pytest.mark.parametrize(
    "text", ["", "0A", "x" * 32, "0A00000100002A9F00000000000003E", "0A 0" * 8, "é" * 32]
)
def test_another_form_is_no_id(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a message id"):
        decode_offset_id(text)


def test_an_offset_below_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="negative"):
        decode_offset_id("0A00000100002A9F" + "F" * 16)


def test_the_parts_of_an_id_that_rocketmq_made() -> None:
    parts = decode_unique_id("FD000000000000000000000000000002122430946E09679FE25F0000")
    assert parts.address == "fd00::2"
    assert parts.process_id == 0x1224
    assert parts.generator == 0x30946E09
    assert parts.month_ms == 0x679FE25F
    assert parts.counter == 0


@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "America/New_York"])
def test_an_id_tells_who_made_it_and_when(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    unique_id._month_start_of.cache_clear()
    try:
        parts = decode_unique_id(generator(FakeClock(NOW_MS)).next_id())
        assert parts.address == "10.1.2.3"
        assert parts.process_id == 70_000 & 0xFFFF
        assert parts.generator == 0xDEADBEEF
        for later_ms in (0, 1, 20 * 86_400_000):
            assert parts.created_ms(NOW_MS + later_ms) == NOW_MS
    finally:
        monkeypatch.undo()
        os.environ.pop("TZ", None)
        time.tzset()
        unique_id._month_start_of.cache_clear()


def test_many_ids_at_once_are_those_that_one_by_one_would_be() -> None:
    for address in ("10.1.2.3", "fd00::7"):
        one_by_one = generator(FakeClock(NOW_MS), address)
        singles = [one_by_one.next_id() for _ in range(70_000)]
        at_once = generator(FakeClock(NOW_MS), address)
        table = at_once.ids_from(at_once.take_numbers(70_000), 70_000)
        assert [row.tobytes().decode() for row in table] == singles
        assert len(set(singles)) == len(singles)  # more than a 16-bit counter can tell apart
        assert singles == sorted(singles)


def test_ids_stay_unique_when_the_clock_goes_back_or_stands() -> None:
    clock = FakeClock(NOW_MS)
    make = generator(clock)
    made = [row.tobytes() for row in make.ids_from(make.take_numbers(1000), 1000)]
    clock.now_ms -= 5000
    made += [row.tobytes() for row in make.ids_from(make.take_numbers(1000), 1000)]
    clock.now_ms += 5000
    made.append(make.next_id().encode())
    assert len(set(made)) == 2001


addresses = st.ip_addresses().map(str)


@given(addresses, st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))
def test_any_offset_id_comes_back(address: str, port: int, offset: int) -> None:
    text = encode_offset_id((address, port), offset)
    assert len(text) == (56 if ":" in address else 32)
    parts = decode_offset_id(text)
    assert encode_offset_id(parts.store_host, parts.physical_offset) == text
    assert ip_address(parts.store_host[0]) == ip_address(address)
    assert (parts.store_host[1], parts.physical_offset) == (port, offset)


@given(addresses, st.integers(0, 2**22), st.integers(0, 2**32 - 1), st.integers(10**11, 4 * 10**12))
def test_any_unique_id_comes_back(
    address: str, process_id: int, generator: int, now_ms: int
) -> None:
    make = UniqueIdGenerator(address, process_id, generator, clock_ms=lambda: now_ms)
    for counter in range(3):
        parts = decode_unique_id(make.next_id())
        assert ip_address(parts.address) == ip_address(address)
        assert parts.process_id == process_id & 0xFFFF
        assert (parts.generator, parts.counter) == (generator, counter)
        assert parts.created_ms(now_ms) == now_ms


@given(st.text(max_size=60) | st.text("0123456789abcdefABCDEF", min_size=32, max_size=32))
def test_any_text_is_an_id_of_32_or_56_digits_or_none(text: str) -> None:
    try:
        decode_offset_id(text)
    except ConfigError:
        return
    assert len(text) in {32, 56}
    assert set(text) <= set("0123456789abcdefABCDEF")


@pytest.mark.parametrize(
    ("host", "offset"),
    [
        (("localhost", 1), 0),
        (("1.2.3", 1), 0),
        (("fd00::1::2", 1), 0),
        (("1.2.3.4", -1), 0),
        (("1.2.3.4", 2**31), 0),
        (("1.2.3.4", 1), -1),
        (("1.2.3.4", 1), 2**63),
    ],
)
def test_parts_that_no_id_has_are_refused(host: tuple[str, int], offset: int) -> None:
    with pytest.raises(ConfigError):
        encode_offset_id(host, offset)


def test_a_generator_needs_an_address() -> None:
    with pytest.raises(ConfigError, match="'my-host' is not an IPv4 or IPv6 address"):
        UniqueIdGenerator("my-host", 1, 1, clock_ms=FakeClock())
