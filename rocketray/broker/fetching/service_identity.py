"""The secrets of a fetch service: the token that clients show, and a certificate of its own.

They are created with the first start of the service and kept in RUNTIME, with its port: a service
that is started again, as after its process was killed, is the same one to its clients. No authority
signs the certificate: clients get it with the address, by a call over Ray, and trust no other one.
"""

from __future__ import annotations

import ipaddress
import json
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rocketray.runtime.files.paths import fetch_port_file, fetch_service_file
from rocketray.runtime.files.private_files import write_secret

_TOKEN_BYTES = 32  # 256 bits
_VALID = datetime(2020, 1, 1, tzinfo=UTC), datetime(2120, 1, 1, tzinfo=UTC)
"""For any clock: the certificate ends with the node, and its clients trust it alone."""
_FILE_MAX_BYTES = 64 * 1024  # a certificate and its key have some 1 kB


@dataclass(frozen=True, slots=True)
class ServiceIdentity:
    """The token, and in PEM the certificate and its key: both empty without TLS.

    ``port`` is that of the last start, or 0.
    """

    host: str
    token: str
    certificate: str
    key: str
    port: int = 0


def settle_service(data: Path, host: str, *, has_tls: bool) -> ServiceIdentity:
    """Return the identity of the service of the node on *data*, which listens on *host*.

    A file that cannot be read is replaced: clients ask for the new identity.
    """
    kept = kept_service(data)
    if kept is not None and (kept.host, bool(kept.certificate)) == (host, has_tls):
        return kept
    certificate, key = _certificate(host) if has_tls else ("", "")
    return ServiceIdentity(host, secrets.token_urlsafe(_TOKEN_BYTES), certificate, key)


def kept_service(data: Path) -> ServiceIdentity | None:
    """Return the identity of the service that runs, or ran; None if there is none to be read."""
    try:
        return ServiceIdentity(
            **json.loads(fetch_service_file(data).read_bytes()[:_FILE_MAX_BYTES])
        )
    except (OSError, ValueError, TypeError):  # TypeError: fields of another release
        return None


def choose_port(data: Path, port: int) -> None:
    """Have the service of the node on *data* listen on *port*, from its next start on."""
    fetch_port_file(data).write_text(str(port))


def chosen_port(data: Path) -> int:
    """Return the port that the operator chose; 0 if any will do."""
    try:
        return int(fetch_port_file(data).read_text())
    except FileNotFoundError:
        return 0


def keep_service(data: Path, identity: ServiceIdentity) -> None:
    """Keep the identity for the next start of the service."""
    kept = {name: getattr(identity, name) for name in ServiceIdentity.__slots__}
    write_secret(fetch_service_file(data), json.dumps(kept))


def _certificate(host: str) -> tuple[str, str]:
    """Return a certificate for *host* that its own key signs, and the key, both in PEM."""
    # Loads OpenSSL, which processes that only look for the service do not need.
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "rocketray")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_VALID[0])
        .not_valid_after(_VALID[1])
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return builder.sign(key, SHA256()).public_bytes(Encoding.PEM).decode(), pem.decode()
