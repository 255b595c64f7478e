"""Forms of values as JSON text, with their binary values in it or beside it.

in the text   base64
beside it     {"beside": n}, the number of the value among those beside the text
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

_BESIDE = "beside"  # no form has an object of that name alone: only options of methods have names


def write_text(form: Any, beside: list[Any] | None = None) -> bytes:
    """Return a form as JSON; add its binary values to *beside*, uncopied, if that is given."""

    def put_beside(value: Any) -> dict[str, int]:
        assert beside is not None
        beside.append(value)
        return {_BESIDE: len(beside) - 1}

    default = _in_base64 if beside is None else put_beside
    return json.dumps(form, separators=(",", ":"), default=default).encode()


def read_text(text: bytes, beside: Sequence[memoryview] = ()) -> Any:
    """Return the form that :func:`write_text` wrote; raise ``ValueError`` for no JSON."""

    def find(named: dict[str, Any]) -> Any:
        at = named.get(_BESIDE)
        return beside[at] if type(at) is int and 0 <= at < len(beside) else named

    try:
        return json.loads(text, object_hook=find) if beside else json.loads(text)
    except RecursionError:  # from arrays in arrays in arrays
        raise ValueError(f"{len(text)} bytes of JSON are nested too deeply") from None


def _in_base64(value: Any) -> str:
    return base64.b64encode(value).decode()
