"""The command line: the only reader of arguments and environment, and the only one that prints.

Exit codes
  0  it worked
  1  it failed: the message on stderr says what, where and what to do; no traceback
  2  it was asked for wrongly: an option, a name or an expression that cannot be right

Results go to stdout, everything else to stderr. Commands import late what is slow to import, so
that ``--version``, ``filter eval`` and ``store scan`` start without Ray, Faust and Spark.
"""

from __future__ import annotations

from .application import main

__all__ = ["main"]
