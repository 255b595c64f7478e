"""Archives at Ray's head: uploaded once, kept while they are used, and one line where Ray refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketray.errors import ActorError
from rocketray.hosting import code_upload
from rocketray.hosting.code_archive import CodeArchive
from rocketray.hosting.code_upload import RENEW_S, upload

ARCHIVE = CodeArchive(Path("/apps"), 1, 5, (), b"zip")


class FakeHead:
    """Ray's head, as the functions of Ray that code_upload.py imports."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stored: dict[str, bytes] = {}
        self.did: list[str] = []
        self.kept_s = 0
        monkeypatch.setattr(code_upload, "package_exists", self.stored.__contains__)
        monkeypatch.setattr(code_upload, "pin_runtime_env_uri", self._pin)
        monkeypatch.setattr(code_upload, "upload_package_to_gcs", self._upload)

    def _pin(self, _: str, *, expiration_s: int) -> None:
        self.did.append("pin")
        self.kept_s = expiration_s

    def _upload(self, uri: str, content: bytes) -> None:
        self.did.append("upload")
        if content == b"refused":
            raise RuntimeError("Failed to store package in the GCS.\n  - data") from OSError("full")
        self.stored[uri] = content


def test_an_archive_is_uploaded_once_and_kept_before_that(monkeypatch: pytest.MonkeyPatch) -> None:
    head = FakeHead(monkeypatch)
    uri = upload(ARCHIVE)
    assert head.stored == {uri: b"zip"}
    assert uri == f"gcs://_ray_pkg_{ARCHIVE.digest}.zip"
    assert upload(ARCHIVE) == uri
    assert head.did == ["pin", "upload", "pin"]
    assert head.kept_s > 2 * RENEW_S, "one call may fail"


def test_what_ray_does_not_take_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeHead(monkeypatch)
    refused = CodeArchive(Path("/apps"), 1, 5, (), b"refused")
    with pytest.raises(ActorError, match=r"^Ray did not take the code in /apps .*: full; see"):
        upload(refused)
