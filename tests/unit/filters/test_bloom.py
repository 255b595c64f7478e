from __future__ import annotations

import pickle

import pybloom_live
import pytest
from support.rocketmq.golden import golden_rows

from rocketray.errors import ConfigError
from rocketray.filters.bloom import RocketBloomFilter, bit_positions, bloom_parameters

ROWS = golden_rows("bloom")


def test_sizes_and_positions_are_those_of_rocketmq() -> None:
    assert len(ROWS) > 1000
    for row in ROWS:
        assert bloom_parameters(row["f"], row["n"]) == (row["k"], row["m"])
        if "s" in row:
            assert bit_positions(row["s"], row["f"], row["n"]) == row["bits"], row


@pytest.mark.parametrize(
    ("text", "bitmap"),
    [
        ("group#topic", "0000200000000000008000000000"),
        ("CID_abc#TopicTest", "0000002000000020000000008000"),
        ("please_rename_unique_group_name_4#TopicTest", "0040000000000880000000000000"),
        ("消费组#主题", "0000200000000000000000002080"),
    ],
)
def test_the_bitmap_is_that_of_rocketmq(text: str, bitmap: str) -> None:
    bloom = RocketBloomFilter()
    assert not bloom.add(text)
    assert bloom.to_bytes().hex() == bitmap
    assert text in RocketBloomFilter.from_bytes(bytes.fromhex(bitmap))


def test_it_is_a_pybloom_filter_with_our_bits() -> None:
    bloom = RocketBloomFilter(20, 32)
    assert isinstance(bloom, pybloom_live.BloomFilter)
    assert (bloom.num_bits, bloom.num_slices, bloom.capacity, len(bloom)) == (112, 3, 32, 0)
    assert not bloom.add("a")
    assert bloom.add("a")
    assert not bloom.add("a", skip_check=True)
    assert len(bloom) == 2


def test_copies_share_nothing() -> None:
    bloom = RocketBloomFilter()
    bloom.add("a")
    for other in (bloom.copy(), pickle.loads(pickle.dumps(bloom))):
        assert isinstance(other, RocketBloomFilter)
        assert (other.to_bytes(), len(other)) == (bloom.to_bytes(), 1)
        other.add("b")
        assert "b" in other
        assert "b" not in bloom


def test_union_and_intersection_keep_rocketmqs_bits() -> None:
    left, right, both = RocketBloomFilter(), RocketBloomFilter(), RocketBloomFilter()
    for text, bloom in (("a", left), ("b", right), ("a", both), ("b", both)):
        bloom.add(text)
    assert (left | right).to_bytes() == both.to_bytes()
    assert (both & left).to_bytes() == left.to_bytes()
    assert "a" in (left | right)
    assert "b" not in left


def test_it_never_refuses_a_text() -> None:
    bloom = RocketBloomFilter(20, 1)
    for i in range(100):
        bloom.add(str(i), skip_check=True)
    assert all(str(i) in bloom for i in range(100))


def test_a_bitmap_of_another_size_is_refused() -> None:
    with pytest.raises(ConfigError, match="104 bits"):
        RocketBloomFilter.from_bytes(bytes(13))


@pytest.mark.parametrize(("f", "n"), [(0, 32), (100, 32), (20, 0), (1, 2**31)])
def test_a_size_that_rocketmq_would_refuse_is_refused(f: int, n: int) -> None:
    with pytest.raises(ConfigError):
        RocketBloomFilter(f, n)
