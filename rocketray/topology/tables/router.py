"""Which keys of tables this instance answers for, in web views with ``@app.table_route``.

Faust asks the instance that a hash of the key names. Where a key is, is known here: with the queue
that it came in. A key that is not here is answered with 503, unless all of the table is.
"""

from __future__ import annotations

from typing import Any

from faust.app.router import Router

__all__ = ["OwnKeys"]


class OwnKeys(Router):  # type: ignore[misc]  # Faust's types are not followed
    """Routes to this instance, or not at all."""

    def key_store(self, table_name: str, key: Any) -> Any:
        """The address of this instance; raises KeyError for a key of another one."""
        table = self._get_table(table_name)
        owned = self.app.tables.owned_queues()
        if table.is_global or key in table or len(owned) == table.changelog_queues:
            return self.app.conf.canonical_url
        raise KeyError(key)
