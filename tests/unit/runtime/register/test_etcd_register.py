"""A register in etcd: several servers, TLS, and what no server answers."""

from __future__ import annotations

import datetime as dt
import ipaddress
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from support.nodes.register_servers import etcd_server, every_call, free_port

from rocketray.errors import ConfigError, RegisterUnavailableError
from rocketray.runtime.register.register import open_register

REQUEST_S = "rocketray.runtime.register.etcd_register._REQUEST_S"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with etcd_server(tmp_path_factory.mktemp("etcd") / "data") as found:
        yield found


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that accepts requests and answers none."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def test_the_next_server_answers_for_one_that_is_down(
    server: str, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(REQUEST_S, 2.0)
    down = f"127.0.0.1:{free_port()}"
    register: Any = open_register(f"etcd://{down},{silent},{server}/several")
    assert register.create("a/b", b"x")
    assert register.read("a/b") == b"x"
    asked = [f"{client.host}:{client.port}" for client in register._clients]
    assert asked == [server, down, silent], "the one that answered is asked first"
    assert open_register(f"etcd://{server}/several").names("") == ["a/b"]
    assert open_register(f"etcd://{server}/severa").names("") == []


def test_without_an_answer_each_server_is_named_with_a_reason(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(REQUEST_S, 0.2)
    down = f"127.0.0.1:{free_port()}"
    for call in every_call(open_register(f"etcd://{down},{silent}/x")):
        with pytest.raises(RegisterUnavailableError) as raised:
            call()
        text = str(raised.value)
        assert f"register etcd://{down},{silent}/x is unavailable: {down}: " in text
        assert f"; {silent}: " in text
        assert "\n" not in text


def test_a_server_with_tls_that_asks_for_a_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", issued(tmp_path / "other")[0])
    ca, certificate, key = issued(tmp_path)
    options = [
        *("--cert-file", certificate, "--key-file", key),
        *("--client-cert-auth", "--trusted-ca-file", ca),
    ]
    with etcd_server(tmp_path / "data", *options, scheme="https") as server:
        url = f"etcds://{server}/x?ca={ca}&cert={certificate}&key={key}"
        register = open_register(url)
        assert register.address == f"etcds://{server}/x"
        assert register.create("a/b", b"x")
        assert register.read("a/b") == b"x"
        for refused in (f"?ca={ca}", "", f"?ca={ca}x"):
            with pytest.raises(RegisterUnavailableError):
                open_register(f"etcds://{server}/x{refused}").read("a/b")


@pytest.mark.parametrize(
    "url",
    [
        *("etcd://", "etcd://host/x", "etcd://host:2379", "etcd://host:2379/", "etcd://:1/x"),
        *("etcd://host:2379/a b", "etcd://host:2379,/x", "etcd://host:2379/x?token=1"),
        *("etcd://host:2379/x#y", "etcd://host:999999/x", "etcd://host:2379/x/../y"),
    ],
)
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"etcd://HOST:2379,HOST:2379/PREFIX"):
        open_register(url)


def issued(directory: Path) -> tuple[str, str, str]:
    """The files of an authority, which are those of the server and of its client, too."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    written = certificate.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (directory / "cert.pem").write_bytes(written)
    (directory / "key.pem").write_bytes(secret)
    return str(directory / "cert.pem"), str(directory / "cert.pem"), str(directory / "key.pem")
