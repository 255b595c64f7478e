"""A register in etcd, through its HTTP gateway.

    etcd://HOST:2379/PREFIX             one server, or several: etcd://A:2379,B:2379,C:2379/PREFIX
    etcds://…?ca=FILE&cert=FILE&key=FILE      with TLS; the files of a private authority and of this
                                              client, where the servers ask for it

Every revision stays in etcd's history until it is compacted: start it with
``--auto-compaction-retention=1h``, or another time.

Invariants
  1. A key is created in a transaction, if its revision is 0. Reading and listing are linearizable,
     as etcd does it by default.
  2. A server that does not answer is followed by the next one, also for ``create``: it may find
     what the first one stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit

from etcd3gw.client import Etcd3Client
from etcd3gw.exceptions import Etcd3Exception

from rocketray.errors import ConfigError, RegisterUnavailableError

from .register_keys import check_folder, check_key, check_size, is_key

_T = TypeVar("_T")
_PROTOCOLS = {"etcd": "http", "etcds": "https"}
_REQUEST_S = 5.0
"""How long a server has to accept a request, and again to answer it."""
_SERVER = re.compile(r"([A-Za-z0-9._-]+):([0-9]{1,5})", re.ASCII)
_OPTIONS = {"ca", "cert", "key"}
_API = "/v3/"  # of etcd 3.4 and later
_REASON_MAX = 300  # of one server: those of all are in one line of a log


class EtcdRegister:
    """A ``Register`` below a prefix of etcd's keys; for any thread and any machine."""

    def __init__(self, url: str) -> None:
        """Use the servers at *url*.

        Raises:
            ConfigError: the URL has another form.
        """
        parts = urlsplit(url)
        self.address = f"{parts.scheme}://{parts.netloc}{parts.path}"
        servers = [_SERVER.fullmatch(each) for each in parts.netloc.split(",")]
        options = parse_qs(parts.query, keep_blank_values=True)
        prefix = parts.path.strip("/")
        has_more = bool(options.keys() - _OPTIONS or parts.fragment)
        if not all(servers) or not is_key(prefix) or has_more:
            raise ConfigError(
                "the URL of a register in etcd has another form: write "
                "etcd://HOST:2379,HOST:2379/PREFIX, or etcds://…?ca=FILE&cert=FILE&key=FILE"
            )
        self._prefix = f"{prefix}/"
        files = {name: values[-1] for name, values in options.items()}
        self._clients = [
            _client(server[1], int(server[2]), _PROTOCOLS[parts.scheme], files)
            for server in servers
            if server is not None
        ]

    def create(self, key: str, value: bytes) -> bool:
        place = self._prefix + check_key(key)
        check_size(key, len(value))
        return self._call(lambda client: client.create(place, value))

    def read(self, key: str) -> bytes | None:
        place = self._prefix + check_key(key)
        found = self._call(lambda client: client.get(place))
        if not found:
            return None
        check_size(key, len(found[0]))
        return found[0]

    def names(self, folder: str) -> list[str]:
        begin = self._prefix + (f"{check_folder(folder)}/" if folder else "")
        end = begin[:-1] + chr(ord("/") + 1)  # the first key that begins with something else
        found = self._call(
            lambda client: client.get(begin, metadata=True, range_end=end, keys_only=True)
        )
        keys = [bytes(pair["key"]).decode("ascii") for _, pair in found]
        return sorted(key.removeprefix(self._prefix) for key in keys)

    def remove(self, key: str) -> None:
        place = self._prefix + check_key(key)
        self._call(lambda client: client.delete(place))

    def _call(self, request: Callable[[Etcd3Client], _T]) -> _T:
        """Return the answer of the first server that has one, and ask it first from then on."""
        reasons = []
        for client in [*self._clients]:
            try:
                answer = request(client)
            except (Etcd3Exception, OSError, ValueError) as error:
                reasons.append(f"{client.host}:{client.port}: {_reason(error)}")
            else:
                if client is not self._clients[0]:
                    # A new list: other threads may be in the middle of the old one.
                    others = [each for each in self._clients if each is not client]
                    self._clients = [client, *others]
                return answer
        raise RegisterUnavailableError(self.address, "; ".join(reasons))


def _client(host: str, port: int, protocol: str, files: Mapping[str, str]) -> Etcd3Client:
    client = Etcd3Client(
        host,
        port,
        protocol,
        ca_cert=files.get("ca"),
        cert_cert=files.get("cert"),
        cert_key=files.get("key"),
        timeout=_REQUEST_S,
        api_path=_API,
    )
    client.session.trust_env = "ca" not in files  # else REQUESTS_CA_BUNDLE would replace it
    return client


def _reason(error: Exception) -> str:
    detail = getattr(error, "detail_text", None) or str(error) or type(error).__name__
    return " ".join(str(detail).split())[:_REASON_MAX]
