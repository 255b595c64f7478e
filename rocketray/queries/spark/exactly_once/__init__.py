"""Writers for sinks of two arguments that write each micro-batch once, by its number.

Spark calls a function with a batch again when it does not know whether the batch was written. Each
writer keeps a ledger where the rows are, and adds the rows and the entry of the ledger in one step,
so a batch that is repeated writes nothing:

- ``to_parquet``: a directory for each batch, renamed into place (parquet_batches.py);
- ``to_jdbc``: a transaction with a row in a table of ledgers (jdbc_batches.py);
- ``to_delta``: Delta's own transaction identifiers (delta_batches.py).

The ledger's key is the id of the query, which its checkpoint holds, and the number of the batch. A
query with a new checkpoint is a new one: it writes what it reads again. With ``txn_app_id``, as
Delta calls it, the key is the user's: then delete a checkpoint only together with what was written.
"""

from __future__ import annotations

from .delta_batches import to_delta
from .jdbc_batches import to_jdbc
from .parquet_batches import to_parquet

__all__ = ["to_delta", "to_jdbc", "to_parquet"]
