"""The trace of a message is that which OpenTelemetry finds in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.harness.amounts import examples

from rocketray.errors import ConfigError
from rocketray.views.trace_links import check_trace_url, trace_id_of

ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{ID}-00f067aa0ba902b7-01"


def parts(size: int) -> st.SearchStrategy[str]:
    return st.sampled_from(["0" * size, "f" * size, "a1" * (size // 2), "A" * size, "g" * size, ""])


@examples(300)
@given(
    version=st.sampled_from(["00", "01", "ff", "0", "000"]),
    trace=parts(32),
    span=parts(16),
    flags=st.sampled_from(["00", "01", "1", "zz"]),
    rest=st.sampled_from(["", "-x", "x", " "]),
)
def test_it_is_that_of_open_telemetry(
    version: str, trace: str, span: str, flags: str, rest: str
) -> None:
    context = pytest.importorskip("rocketray.tracing.message_context")
    text = f"{version}-{trace}-{span}-{flags}{rest}"
    found = context.span_context_of(text, None)
    assert trace_id_of({"traceparent": text}) == (found and f"{found.trace_id:032x}")


def test_without_a_context() -> None:
    assert trace_id_of({}) is None
    assert trace_id_of({"traceparent": PARENT}) == ID


@pytest.mark.parametrize("text", ["", "{trace_id}", "http://a/", "ftp://a/{trace_id}", "http:///{trace_id}", "javascript:{trace_id}"])  # fmt: skip
def test_a_template_is_an_address_with_a_place_for_the_id(text: str) -> None:
    with pytest.raises(ConfigError, match="such as http://localhost:16686"):
        check_trace_url(text)
    assert check_trace_url("https://a/{trace_id}?x") == "https://a/{trace_id}?x"
