"""Tables of a database, exactly once: a transaction of the rows and a row of the ledger.

Spark writes each partition in a transaction of its own. So it writes a batch to a staging table, in
parallel; then one transaction copies the rows to the table, and notes the batch:

    rocketray_batches (txn_app_id VARCHAR(120), target VARCHAR(400), batch_id BIGINT)

``batch_id`` is the last batch of a query in a table. The batches of a query come in order, so a
batch of this number or a lower one is there.

Invariants
  1. The rows of a batch and its entry are committed together, or neither is.
  2. A staging table has a name of its own, so it has the rows of one attempt.
  3. Other staging tables of the query are dropped after a commit only, like rests of Parquet files.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame

from rocketray.errors import ConfigError, StreamError

from .ledger_key import app_of

_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,119}(\.[A-Za-z_][A-Za-z0-9_$]{0,119}){0,2}\Z")
_LEDGER = "rocketray_batches"
_COPIES = {
    "jdbc:derby": "CREATE TABLE {new} AS SELECT {columns} FROM {table} WITH NO DATA",
    "jdbc:sqlserver": "SELECT {columns} INTO {new} FROM {table} WHERE 1 = 0",
}
"""How a database creates an empty table with columns of another one; the others do as below."""
_COPY = "CREATE TABLE {new} AS SELECT {columns} FROM {table} WHERE 1 = 0"


def to_jdbc(
    frame: DataFrame,
    batch_id: int,
    url: str,
    table: str,
    *,
    properties: Mapping[str, str] | None = None,
    txn_app_id: str | None = None,
    ledger: str = _LEDGER,
) -> bool:
    """Add a micro-batch to a table of a database, unless it is there. Durable on return.

    *url* and *properties* (``user``, ``password``, ``driver``) are those of Spark's JDBC writer. A
    table that does not exist is created with Spark's types, and so is the *ledger*. The user has to
    be allowed to create and drop tables, and the tables have to be transactional. Spark has the
    driver of Derby; that of any other database is a jar: ``spark.jars`` or ``spark.jars.packages``
    in ``SparkOptions(settings=…)``.

    Returns:
        whether it has written the batch.

    Raises:
        ConfigError: a name cannot be a table's, or the table lacks a column of the frame.
        StreamError: the database refused a statement; nothing of the batch is in the table.
    """
    for name in (table, ledger):
        if not _TABLE.match(name):
            raise ConfigError(
                f"{name!r:.140} is not the name of a table: up to three parts of letters, digits, "
                "_ and $, separated by dots"
            )
    app = app_of(frame, batch_id, txn_app_id)
    given = dict(properties or {})
    schema, dot, _ = table.rpartition(".")
    # 35 characters with the eight of the staging table: databases allow 63 (PostgreSQL) or more.
    rests = f"rocketray_{hashlib.sha256(f'{app} {table}'.encode()).hexdigest()[:16]}_"
    staging = f"{schema}{dot}{rests}{uuid.uuid4().hex[:8]}"
    with _opened(frame, url, given) as database:
        # Neither has a quote: ``app_of`` and ``_TABLE`` allow letters, digits and few signs.
        where = f"txn_app_id = '{app}' AND target = '{table}'"
        last = _last_batch(database, ledger, where)
        if last is not None and last >= batch_id:
            return False
        # Creates the table, with Spark's types, where there is none.
        frame.limit(0).write.jdbc(url, table, mode="ignore", properties=given)
        columns = _quoted(database, table, frame.columns)
        copy = next((one for kind, one in _COPIES.items() if url.startswith(kind)), _COPY)
        database.run(copy.format(new=staging, columns=columns, table=table))
        frame.write.jdbc(url, staging, mode="append", properties=given)
        advance = (
            f"INSERT INTO {ledger} VALUES ('{app}', '{table}', {batch_id})"
            if last is None
            else f"UPDATE {ledger} SET batch_id = {batch_id} WHERE {where} AND batch_id = {last}"
        )
        with database.transaction():
            # The row of the ledger stays locked until the end of the transaction, so of two writers
            # one waits here, and then finds no row with the number ``last``.
            if database.run(advance) != 1:
                raise StreamError(
                    f"another writer added a batch of {app} to table {table} at the same time; "
                    "give each query a checkpoint of its own"
                )
            database.run(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {staging}")
        for rest in database.tables(rests):
            database.run(f"DROP TABLE {schema}{dot}{rest}")
    return True


def _last_batch(database: _Database, ledger: str, where: str) -> int | None:
    query = f"SELECT batch_id FROM {ledger} WHERE {where}"
    try:
        return database.number(query)
    except StreamError:  # it is not there yet, or the next statement says why
        database.run(
            # ``target`` has three parts of 120 characters at most, and two dots: see ``_TABLE``.
            f"CREATE TABLE {ledger} (txn_app_id VARCHAR(120) NOT NULL, target VARCHAR(400) NOT "
            "NULL, batch_id BIGINT NOT NULL, PRIMARY KEY (txn_app_id, target))"
        )
        return None


def _quoted(database: _Database, table: str, wanted: Sequence[str]) -> str:
    """Return the columns of *table* that the frame has, quoted, and found without their case."""
    there = database.columns(table)
    by_name = {name.lower(): name for name in there} | {name: name for name in there}
    found = [by_name.get(name) or by_name.get(name.lower()) for name in wanted]
    missing = [name for name, column in zip(wanted, found, strict=True) if column is None]
    if missing:
        raise ConfigError(
            f"table {table} has no column {', '.join(missing)}; it has {', '.join(there)}: select "
            "the frame's columns as the table has them"
        )
    return ", ".join(database.quote(column) for column in found if column is not None)


@contextmanager
def _opened(frame: DataFrame, url: str, properties: Mapping[str, str]) -> Iterator[_Database]:
    """Connect as Spark's writer does, so that it finds drivers in jars that Spark has loaded."""
    jvm: Any = frame.sparkSession.sparkContext._jvm  # noqa: SLF001 - as pyspark's own modules
    options = jvm.java.util.HashMap()
    for name, value in {**properties, "url": url, "dbtable": _LEDGER}.items():
        options.put(name, value)
    sql = jvm.org.apache.spark.sql
    scala = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(options)
    dialect = getattr(getattr(sql.jdbc, "JdbcDialects$"), "MODULE$").get(url)
    parsed = sql.execution.datasources.jdbc.JDBCOptions(scala)
    with _refusals():
        # Spark's number for a connection of the driver, which is of no partition.
        connection = dialect.createConnectionFactory(parsed).apply(-1)
    try:
        yield _Database(connection, dialect.quoteIdentifier)
    finally:
        connection.close()


@contextmanager
def _refusals() -> Iterator[None]:
    """Raise what the database says, without the stack of the JVM."""
    try:
        yield
    except Py4JJavaError as error:
        raise StreamError(f"the database refused: {error.java_exception.toString()}") from None


class _Database:
    """A connection of JDBC. Each statement is a transaction, but in a block of one."""

    def __init__(self, connection: Any, quote: Callable[[str], str]) -> None:
        self._connection = connection
        self.quote = quote

    def run(self, statement: str) -> int:
        """Run a statement that returns no rows; return the number of rows that it changed."""
        with _refusals(), self._statement() as made:
            return int(made.executeUpdate(statement))

    def number(self, query: str) -> int | None:
        """Return the number in the first row; None without a row."""
        with _refusals(), self._statement() as made:
            rows = made.executeQuery(query)
            return int(rows.getLong(1)) if rows.next() else None

    def columns(self, table: str) -> list[str]:
        """Return the columns of a table, in their order."""
        with _refusals(), self._statement() as made:
            found = made.executeQuery(f"SELECT * FROM {table} WHERE 1 = 0").getMetaData()
            return [found.getColumnName(at + 1) for at in range(found.getColumnCount())]

    def tables(self, prefix: str) -> list[str]:
        """Return the tables whose name begins with *prefix*, in any case."""
        with _refusals():
            about = self._connection.getMetaData()
            found = []
            # Databases fold a name without quotes to lower or to upper case, and compare patterns
            # exactly.
            for pattern in (f"{prefix}%", f"{prefix}%".upper()):
                rows = about.getTables(self._connection.getCatalog(), None, pattern, None)
                while rows.next():
                    found.append(str(rows.getString("TABLE_NAME")))
            return [name for name in found if name.lower().startswith(prefix)]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the statements of the block together, or none of them if it raises."""
        self._connection.setAutoCommit(False)
        try:
            yield
            with _refusals():
                self._connection.commit()
        except BaseException:
            self._connection.rollback()
            raise
        finally:
            self._connection.setAutoCommit(True)

    @contextmanager
    def _statement(self) -> Iterator[Any]:
        made = self._connection.createStatement()
        try:
            yield made
        finally:
            made.close()
