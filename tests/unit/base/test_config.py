from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketray.base.config import StoreConfig
from rocketray.errors import ConfigError, StreamError
from rocketray.store.files.store_settings import settle_config


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("commit_log_segment_bytes", 65_536.5, "65536.5; its type must be int"),
        ("commit_log_segment_bytes", "65536", "'65536'; its type must be int"),
        ("flush_interval_ms", True, "True; its type must be int"),
        ("append_properties_crc", 1, "1; its type must be bool"),
        ("commit_log_segment_bytes", 4095, "must be from 4096"),
        ("index_entries", 1, "at least 2"),
        ("consume_queue_segment_entries", 2**31 // 20 + 1, "the limit is below 2 GiB"),
        ("index_entries", 2**40, "the limit is below 2 GiB"),
        ("index_hash_slots", 2**29, "the limit is below 2 GiB"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused(field: str, value: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        StoreConfig(**{field: value})


def test_rocketmqs_own_sizes_can_be_used() -> None:
    StoreConfig(1 << 30, 300_000, 5_000_000, 20_000_000)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(["version", *StoreConfig.__slots__]), values, max_size=9))
def test_any_description_of_a_store_is_settings_or_an_error_of_ours(
    tmp_path_factory: pytest.TempPathFactory, description: dict[str, Any]
) -> None:
    directory = tmp_path_factory.mktemp("store")
    Path(directory / "store.json").write_bytes(
        orjson.dumps({"version": 1, "store_host": ["1.2.3.4", 5], **description})
    )
    try:
        found = settle_config(directory, None, read_only=True)
    except StreamError:
        return
    assert all(
        getattr(found, name) == (tuple(value) if name == "store_host" else value)
        for name, value in description.items()
        if name != "version"
    )
