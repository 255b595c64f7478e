from __future__ import annotations

import pytest

from rocketray.errors import ConfigError
from rocketray.queries.spark.failures import describe_failure, place_of_failure, plainly

FOREACH = """\
[STREAM_FAILED] Query [id = 1] terminated with exception: Reason: Traceback (most recent call last):
  File "clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
RuntimeError: the lake is frozen
 SQLSTATE: 39000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: bad
"""
TWICE = """\
[STREAM_FAILED] Failed to plan: Traceback (most recent call last):
  File "schema.py", line 76, in _check_field
    raise ConfigError(
rocketray.errors.ConfigError: the source has no column 'bodi'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "runner.py", line 295, in main
UnboundLocalError: cannot access local variable
"""
TASK = """\
Job aborted due to stage failure: PythonException: Traceback (most recent call last):
  File "range_reader.py", line 5, in read_range
    raise error
rocketray.errors.FilterSyntaxError: expected a value
  a >
     ^

\tat org.apache.spark.api.python.BasePythonRunner
"""
ANALYSIS = "[UNRESOLVED_COLUMN] A column `nope` cannot be resolved.\n'Project ['nope]\n+- more"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (FOREACH, "RuntimeError: the lake is frozen"),
        (TWICE, "rocketray.errors.ConfigError: the source has no column 'bodi'"),
        (TASK, "rocketray.errors.FilterSyntaxError: expected a value\n  a >\n     ^"),
        (ANALYSIS, "[UNRESOLVED_COLUMN] A column `nope` cannot be resolved."),
        ("Traceback (most recent call last):", ""),
        ("", "RuntimeError"),
    ],
)
def test_the_python_error_is_found_in_what_spark_says(text: str, expected: str) -> None:
    assert describe_failure(RuntimeError(text)) == expected


def test_an_error_of_ours_has_one_frame_and_the_others_have_all() -> None:
    def fail(error: Exception) -> None:
        raise error

    @plainly
    def method(error: Exception) -> None:
        fail(error)

    with pytest.raises(ConfigError) as caught:
        method(ConfigError("wrong option"))
    assert [frame.name for frame in caught.traceback][1:] == ["call"]
    assert caught.value.__suppress_context__
    with pytest.raises(ZeroDivisionError) as other:
        method(ZeroDivisionError())
    assert [frame.name for frame in other.traceback][1:] == ["call", "method", "fail"]


def test_the_place_is_the_last_line_of_the_authors_own_code() -> None:
    site = "/usr/lib/python3/site-packages/pyspark/sql/utils.py"
    text = f"""STREAM_FAILED Traceback (most recent call last):
  File "{site}", line 166, in call
  File "/home/me/trade.py", line 12, in lake
  File "/home/me/tools.py", line 3, in write
  File "{site}", line 9, in save
  File "<string>", line 1, in <module>
RuntimeError: no lake
"""
    assert place_of_failure(RuntimeError(text)) == "/home/me/tools.py:3"
    assert place_of_failure(RuntimeError("no traceback")) is None
    with pytest.raises(ValueError, match="invalid literal") as raised:
        int("x")
    assert place_of_failure(raised.value) == f"{__file__}:{raised.tb.tb_lineno}"


JAVA = """\
An error occurred while calling o63.start.
: java.lang.ClassNotFoundException: [DATA_SOURCE_NOT_FOUND] Failed to find delta.
\tat org.apache.spark.sql.execution.datasources.DataSource
"""
IN_FUNCTION = f"""STREAM_FAILED Reason: Traceback (most recent call last):
  File "clientserver.py", line 644, in _call_proxy
py4j.protocol.Py4JJavaError: {JAVA}"""


@pytest.mark.parametrize("text", [JAVA, IN_FUNCTION])
def test_of_an_error_of_java_the_line_of_java_is_told(text: str) -> None:
    assert describe_failure(RuntimeError(text)) == (
        "java.lang.ClassNotFoundException: [DATA_SOURCE_NOT_FOUND] Failed to find delta."
    )
    assert describe_failure(RuntimeError("An error occurred while calling o1.stop.")) != ""
