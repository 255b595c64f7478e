"""What tests of encoded messages share: their producer, and texts that a message may have."""

from __future__ import annotations

from hypothesis import strategies as st

PREFIX = "7F0000010001AABBCCDD"
FIRST_ID = 0xFFFFFFFFFF
BORN_HOST = ("127.0.0.1", 9)
NOW_MS = 1_700_000_000_000

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0\x01\x02 *|"), min_size=1)
words = st.text(
    st.characters(codec="utf-8", exclude_categories=("C", "Z"), exclude_characters="*|"), min_size=1
)
