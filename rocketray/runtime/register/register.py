"""A register: a store of small values under keys that are created once, and never changed.

``register_url.py`` has the forms of its URL. The packages for object stores and etcd are an extra:
``pip install 'rocketray[register]'``.
"""

from __future__ import annotations

import re
import uuid
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol
from urllib.parse import SplitResult, unquote, urlsplit

from rocketray.errors import ConfigError, RegisterUnavailableError

from .file_register import FileRegister
from .register_url import DIRECTORY_URL, REGISTER_URLS

_PROBES = "probe"
_PACKAGES = {
    **dict.fromkeys(("s3", "gs", "az"), "obstore"),
    **dict.fromkeys(("etcd", "etcds"), "etcd3gw"),
}


class Register(Protocol):
    """Values under keys, for several processes and machines; for any thread.

    The form of keys and the limits are in register_keys.py. No key is the folder of another: with
    a key ``a/b``, there is no key ``a``.

    Every method raises:
        RegisterUnavailableError: the store did not answer in time, or refused. A change may have
            taken effect, or may take effect later.
        StoreError: the key is invalid, or the value is too large.
    """

    @property
    def address(self) -> str:
        """Where it is, for messages: a URL without secrets."""

    def create(self, key: str, value: bytes) -> bool:
        """Store *value* under *key*, durably on return; return False if the key exists.

        If an answer is lost, and the store's client asks once more, the key may be there because
        of this very call. So a value says where it comes from, and False means: read the key.
        """

    def read(self, key: str) -> bytes | None:
        """Return the value of *key*, None if there is none.

        A value whose ``create`` returned before is found.
        """

    def names(self, folder: str) -> list[str]:
        """Return the keys below *folder*, in order; of all folders for "".

        Keys whose ``create`` returned before are among them.
        """

    def remove(self, key: str) -> None:
        """Remove *key*, if it is there. The same key can be created once more."""


def open_register(url: str) -> Register:
    """Return the register at *url*; it makes no call yet.

    Raises:
        ConfigError: the URL is wrong, its directory does not exist, or a package is missing.
    """
    scheme = url.partition(":")[0]
    # A URL with a password is refused below, and the refusal must not show it.
    shown = re.sub(r"//[^/@]*@", "//", url)
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(
            f"{shown!r} is no URL of a register: {error}; write {REGISTER_URLS}"
        ) from None
    if "@" in parts.netloc:
        raise ConfigError(
            f"{shown!r}: a register's URL has no user and no password, as it is shown in messages; "
            "write it without, and give the credentials in the variables of the store's own tools"
        )
    if scheme == "file":
        return FileRegister(_directory(parts))
    package = _PACKAGES.get(scheme)
    if package is None:
        raise ConfigError(f"{shown!r} is no URL of a register; write {REGISTER_URLS}")
    if find_spec(package) is None:
        raise ConfigError(
            f"the register {shown} needs the package {package}: pip install 'rocketray[register]'"
        )
    if package == "etcd3gw":
        from .etcd_register import EtcdRegister  # noqa: PLC0415 - the package may be missing

        return EtcdRegister(url)
    from .object_register import ObjectRegister  # noqa: PLC0415 - the same

    return ObjectRegister(url)


def check_create_only(register: Register) -> None:
    """Check that the store refuses to create a key twice: not every store with that call does.

    Raises:
        ConfigError: it overwrites the value.
        RegisterUnavailableError: it does not answer.
    """
    key = f"{_PROBES}/{uuid.uuid4().hex}"
    register.create(key, b"first")
    is_overwritten = register.create(key, b"second")
    found = register.read(key)
    register.remove(key)
    if is_overwritten or found == b"second":
        raise ConfigError(
            f"the register {register.address} overwrites a key that exists, so two coordinators "
            "could decide different things; use a store with conditional writes (If-None-Match)"
        )
    if found is None:
        raise RegisterUnavailableError(
            register.address, "it does not return a value that it has just stored"
        )


def _directory(parts: SplitResult) -> Path:
    path = unquote(parts.path)
    has_more = parts.query or parts.fragment
    if parts.netloc not in {"", "localhost"} or not path.startswith("/") or has_more:
        raise ConfigError(
            f"{parts.geturl()!r} names no directory; write {DIRECTORY_URL}, with a path from the root"
        )
    return Path(path)
