"""Archives of code at Ray's head, from which each machine gets them for the hosts that it runs.

Ray keeps an archive while a detached actor uses it, and that also covers an actor that it restarts
on another machine. For other actors it does not count, so a program that has such hosts renews
the archive's time.
"""

from __future__ import annotations

from ray._private.runtime_env.packaging import (
    package_exists,
    pin_runtime_env_uri,
    upload_package_to_gcs,
)
from ray.exceptions import RayError

from rocketray.errors import ActorError

from .code_archive import CodeArchive

_KEPT_S = 600  # also while hosts start
# Every two minutes: the archive stays although four renewals in a row fail.
RENEW_S = _KEPT_S / 5


def upload(archive: CodeArchive) -> str:
    """Upload *archive* unless Ray has it already; return its URI, for the hosts' runtime_env.

    Raises:
        ActorError: Ray did not take it.
    """
    # The form of the name that Ray gives to its own archives, by which it finds and removes them.
    uri = f"gcs://_ray_pkg_{archive.digest}.zip"
    try:
        renew(uri)
        if not package_exists(uri):
            upload_package_to_gcs(uri, archive.content)
    except (RayError, RuntimeError, ValueError) as error:
        raise ActorError(
            f"Ray did not take the code in {archive.directory} ({len(archive.content)} bytes "
            f"packed): {error.__cause__ or error}; see gcs_server.out in the logs of Ray's head"
        ) from error
    return uri


def renew(uri: str) -> None:
    """Have Ray keep an archive for ten minutes from now on, without hosts that use it."""
    pin_runtime_env_uri(uri, expiration_s=_KEPT_S)
