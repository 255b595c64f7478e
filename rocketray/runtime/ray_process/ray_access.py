"""Access to a node's Ray, which only its token protects.

A process that can call a Ray can run code as its user, and every user of a machine can call a Ray
that listens on loopback. So a node's own Ray requires a token that only the node's user can read: a
file in DATA, renewed at each start and named in node.json, where that user's programs find it. A
Ray that was started separately keeps its own protection.

Ray reads from environment variables whether there is a token, and where; its processes inherit
them. They are set only while a Ray is started or joined, so the rest of the program, and the
processes it starts, see the environment unchanged. Ray itself remembers the values.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ray._raylet import (  # type: ignore[attr-defined]  # a compiled module
    AuthenticationMode,
    AuthenticationTokenLoader,
    ClusterID,
    Config,
    InnerGcsClient,
    get_authentication_mode,
)
from ray.exceptions import AuthenticationError

from rocketray.base.environment import with_environ
from rocketray.errors import ConfigError
from rocketray.runtime.files.private_files import (
    make_private_directory,
    open_to_others,
    write_secret,
)
from rocketray.runtime.machine import user_name

from .open_ray import OPEN_RAY_PROBLEM

_LOG = logging.getLogger(__name__)
_MODE, _PATH, _TOKEN = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_TOKEN"
_DISABLED, _WITH_TOKEN = "disabled", "token"
_TOKEN_BYTES = 32  # 256 bits, as 64 digits
_WRONG_TOKEN = "InvalidAuthToken"  # noqa: S105 - what Ray says of one
_ASK_TIMEOUT_MS = 2000  # to connect, and again to answer
_TEMPORARY = Path("/tmp")  # noqa: S108 - Ray's own choice: names of sockets have at most 107 bytes
_NAMES_MAX = 100  # others can take the first name in advance, and no random one


def token_for_node(path: Path) -> Path | None:
    """Write a new token for a node's own Ray to *path*; None if the operator disabled tokens."""
    if os.environ.get(_MODE, "").lower() == _DISABLED:
        path.unlink(missing_ok=True)
        _LOG.warning(
            "RAY_AUTH_MODE=disabled: every user of this machine can run code as %s through the "
            "node's Ray; unset it and start the node again",
            user_name(),
        )
        return None
    write_secret(path, secrets.token_hex(_TOKEN_BYTES))
    return path


@contextmanager
def using_token(mode: str, token: Path | None) -> Iterator[None]:
    """Let a Ray be started or joined with the token in that file, or in authentication *mode*.

    Without both, Ray itself reads the environment.
    """
    wanted: dict[str, str | None] = {_MODE: mode or os.environ.get(_MODE)}
    if token:
        wanted = {_MODE: _WITH_TOKEN, _PATH: str(token), _TOKEN: None}
    with with_environ(wanted):
        forget_token()
        yield


def forget_token() -> None:
    """Make Ray read the environment again, which it did when it was imported, or joined."""
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def is_refused(address: str) -> bool:
    """Return whether the Ray at *address* refuses the token that :func:`using_token` set, if any.

    Ray itself would try for 20 seconds, with a line on stderr each, and then not report the reason.
    So this asks it under a cluster id that does not exist: Ray checks the token first.
    """
    if not address.rpartition(":")[2].isdecimal():
        return False  # a name that Ray knows, such as "auto"
    error = _answer(address, ClusterID(b"\x01" * ClusterID.size()).hex())
    return isinstance(error, AuthenticationError) and _WRONG_TOKEN in str(error)


def knows_ray(address: str, ray_id: str) -> bool | None:
    """Return whether the GCS at *address* is that of the Ray with an id, None if it does not say.

    A GCS that was started again without its state has another id, and may have another token.
    """
    error = _answer(address, ray_id)
    if error is None:
        return True
    return False if isinstance(error, AuthenticationError) else None


def _answer(address: str, ray_id: str) -> Exception | None:
    """Ask the GCS at *address* under the id of a Ray; return its error, or None."""
    try:
        client = InnerGcsClient.standalone(address, ray_id, _ASK_TIMEOUT_MS)
        client.internal_kv_get(b"rocketray", None, _ASK_TIMEOUT_MS / 1000)
    except Exception as error:  # noqa: BLE001 - joining or watching reports what is wrong
        _LOG.debug("the Ray at %s did not answer: %r", address, error)
        return error
    return None


def asks_for_token() -> bool:
    """Return whether the Ray of this process requires a token."""
    return bool(get_authentication_mode() != AuthenticationMode.DISABLED)


def auth_mode() -> str:
    """Return the authentication mode of this process's Ray, for processes that join it."""
    return _WITH_TOKEN if asks_for_token() else _DISABLED


def warn_of_joined_ray() -> None:
    """Log a warning if a Ray that was started separately is open to others.

    It asks for no token, or other users can read the file with it.
    """
    if not asks_for_token():
        _LOG.warning("%s", OPEN_RAY_PROBLEM)
        return
    path = Path(os.environ.get(_PATH) or Path.home() / ".ray" / "auth_token")
    if _TOKEN not in os.environ and open_to_others(path):
        _LOG.warning(
            "other users of this machine can read %s, and run code as you with it: chmod 600 %s",
            path,
            path,
        )


def ray_directory() -> Path:
    """Return the directory of a Ray's sockets and logs, below one that no other user can enter.

    Ray itself lets every user write there, also where the sockets of its processes are.

    Raises:
        ConfigError: none can be made, for example because its file system has no modes.
    """
    names = [f"rocketray-{os.getuid()}"]
    names += [f"{names[0]}-{secrets.token_hex(4)}" for _ in range(_NAMES_MAX)]
    reason = "others can enter, or own, what is made there"
    try:
        for name in names:
            if make_private_directory(_TEMPORARY / name):
                return _TEMPORARY / name / "ray"
    except OSError as error:
        reason = str(error.strerror)
    raise ConfigError(
        f"no directory for Ray's sockets that this user alone can enter can be made in "
        f"{_TEMPORARY}: {reason}; name a directory with RAY_TMPDIR"
    )
