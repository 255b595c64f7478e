"""A register in an object store, by obstore: S3 and compatible stores, Google's and Azure's.

A key is an object below the URL's path. Credentials, region and endpoint come from the variables
of each store's own tools, such as ``AWS_ACCESS_KEY_ID``, ``AWS_REGION``, ``AWS_ENDPOINT_URL``. An
endpoint that begins with ``http://`` is used without TLS.

Invariants
  1. An object is created with ``If-None-Match: *``, or the like of the store, and is whole when it
     has its name. Reading and listing are consistent: so they are in these stores.
  2. obstore repeats a request that failed. So ``create`` may find what its first request stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore, from_url

from rocketray.errors import ConfigError, RegisterUnavailableError

from .register_keys import check_folder, check_key, check_size

_REQUEST_S = 5.0
"""How long one request may take; obstore repeats a failed one up to three times."""
_CALL_S = 10.0
"""No request is repeated after that: with one that was sent just before, a call takes 15 s."""
_REASON_MAX = 300  # a reason is in one line of a log


class ObjectRegister:
    """A ``Register`` in a bucket or container that exists; for any thread and any machine."""

    def __init__(self, url: str) -> None:
        """Use the store at *url*.

        Raises:
            ConfigError: obstore does not accept the URL, or a variable.
        """
        if "?" in url or "#" in url:
            raise ConfigError(
                f"the register {url}: its URL has options; write SCHEME://BUCKET/PREFIX, and set the "
                "variables of the store's own tools"
            )
        self.address = url
        try:
            self._store: ObjectStore = from_url(
                url,
                client_options={"timeout": timedelta(seconds=_REQUEST_S), "allow_http": True},
                retry_config={
                    "max_retries": 3,
                    "retry_timeout": timedelta(seconds=_CALL_S),
                    "backoff": {"max_backoff": timedelta(seconds=1)},
                },
            )
        except (BaseError, ValueError) as error:
            raise ConfigError(f"the register {url}: {_reason(error)}") from error

    def create(self, key: str, value: bytes) -> bool:
        check_key(key)
        check_size(key, len(value))
        with self._failing():
            try:
                obstore.put(self._store, key, value, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

    def read(self, key: str) -> bytes | None:
        check_key(key)
        with self._failing():
            try:
                found = obstore.get(self._store, key)
            except FileNotFoundError:
                return None
            check_size(key, found.meta["size"])
            return bytes(found.bytes())

    def names(self, folder: str) -> list[str]:
        check_folder(folder)
        with self._failing():
            pages = obstore.list(self._store, folder or None)
            return sorted(each["path"] for page in pages for each in page)

    def remove(self, key: str) -> None:
        check_key(key)
        with self._failing():
            try:
                obstore.delete(self._store, key)
            except FileNotFoundError:
                return

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Raise an error of the store as one of the register."""
        try:
            yield
        except (BaseError, OSError) as error:
            raise RegisterUnavailableError(self.address, _reason(error)) from error


def _reason(error: Exception) -> str:
    """Return the first part of an error's text, on one line; further parts are for its authors."""
    return " ".join(str(error).partition("Debug source:")[0].split())[:_REASON_MAX]
