"""Reading of times in ISO 8601, in place of Faust's own parser.

Faust's reads the fraction of a second as a number of microseconds, so that ``10:00:00.123Z``, as
JavaScript and Java write it, is 123 microseconds past, and ``.5`` five; it refuses the nanoseconds
of Java, and ignores seconds of a zone and all that it does not know behind a time. Faust itself
takes ``ciso8601`` instead where that is installed.

Importing this module makes :func:`parse` the parser of the Records that are declared later.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import faust.models.typing
from faust.utils import iso8601
from faust.utils._iso8601_python import RE_ISO8601
from faust.utils._iso8601_python import parse as parse_as_faust


def parse(text: Any) -> datetime:
    """Return the time of *text*; digits below microseconds are cut off.

    Raises:
        ValueError: it is no time in ISO 8601.
    """
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        # Python's parser refuses a month or a day of one digit.
        form = RE_ISO8601.fullmatch(text)
        if form is None or form["day"] is None or form["microsecond"]:
            raise
    found: datetime = parse_as_faust(text)
    return found


iso8601.parse = faust.models.typing.parse_iso8601 = parse
