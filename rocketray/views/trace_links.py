"""The trace of a message: its id, from the W3C context in the properties, and a link to it.

It does without OpenTelemetry, which is an extra.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from rocketray.errors import ConfigError

TRACE_ID = "{trace_id}"
"""What a template of addresses has in place of the id."""
# W3C's traceparent: version, trace, parent, flags. Version ff and ids of zeros only are invalid.
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def trace_id_of(properties: Mapping[str, str]) -> str | None:
    """Return the id, 32 hexadecimal digits; None without a context, or if it is invalid."""
    text = properties.get("traceparent", "").strip()
    match = _PARENT.match(text)
    # Version 00 ends there; a later one may have more, behind a hyphen.
    if match is None or (
        len(text) > match.end() and (text[:2] == "00" or text[match.end()] != "-")
    ):
        return None
    return match[1]


def check_trace_url(template: str) -> str:
    """Return a template such as ``https://jaeger/trace/{trace_id}``.

    Raises:
        ConfigError: it is no address, or has no place for the id.
    """
    address = urlsplit(template)
    if address.scheme not in ("http", "https") or not address.netloc or TRACE_ID not in template:
        raise ConfigError(
            f"the address of traces is {template[:80]!r}; give one with {TRACE_ID} in it, such as "
            f"http://localhost:16686/trace/{TRACE_ID}"
        )
    return template
