"""A register in memory, which a test can stop or make forget."""

from __future__ import annotations

from rocketray.errors import RegisterUnavailableError


class DictRegister:
    """Keys in a dictionary, and the calls that were made."""

    address = "memory://test"

    def __init__(self) -> None:
        self.keys: dict[str, bytes] = {}
        self.calls: list[str] = []
        self.is_stopped = False

    def create(self, key: str, value: bytes) -> bool:
        self._call("create")
        return self.keys.setdefault(key, value) is value

    def read(self, key: str) -> bytes | None:
        self._call("read")
        return self.keys.get(key)

    def names(self, folder: str) -> list[str]:
        self._call("names")
        return sorted(key for key in self.keys if key.startswith(f"{folder}/"))

    def remove(self, key: str) -> None:
        self._call("remove")
        self.keys.pop(key, None)

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.is_stopped:
            raise RegisterUnavailableError(self.address, "the test stopped it")
