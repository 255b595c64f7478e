"""The endpoint of metrics: who may read it, and what it says when the node does not answer."""

from __future__ import annotations

import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from support.harness.patience import patience, wait_until

from rocketray.broker.fetching.service_identity import settle_service
from rocketray.errors import ConfigError, ShardUnavailableError
from rocketray.services.metrics import metrics_endpoint
from rocketray.services.metrics.metrics_endpoint import Access, MetricsEndpoint

ANY_PORT = Access(port=0)


def one() -> list[Metric]:
    return [GaugeMetricFamily("answer", "An answer.", value=42)]


@contextmanager
def served(read: Callable[[], list[Metric]], access: Access = ANY_PORT) -> Iterator[str]:
    endpoint = MetricsEndpoint(read, access)
    scheme = "http" if access.certificate is None else "https"
    try:
        yield f"{scheme}://{access.host}:{endpoint.port}"
    finally:
        endpoint.close()


def get(url: str, token: str = "", trusted: Path | None = None) -> tuple[int, str]:
    request = urllib.request.Request(url, headers={"Authorization": token} if token else {})
    context = None if trusted is None else ssl.create_default_context(cafile=str(trusted))
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    try:
        with opener.open(request, timeout=patience(20)) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_scrape_gets_the_metrics() -> None:
    with served(one) as place:
        status, text = get(f"{place}/metrics?name[]=answer")
        assert (status, text.splitlines()[-1]) == (200, "answer 42.0")
        assert get(f"{place}/elsewhere") == (404, "the metrics are at /metrics\n")


def test_the_node_is_asked_once_a_second_at_most() -> None:
    asked: list[int] = []

    def read() -> list[Metric]:
        asked.append(1)
        return one()

    with served(read) as place:
        for _ in range(5):
            assert get(f"{place}/metrics")[0] == 200
    assert len(asked) < 5


def test_while_the_node_does_not_answer_the_endpoint_says_why() -> None:
    answers: list[list[Metric]] = []

    def read() -> list[Metric]:
        if not answers:
            raise ShardUnavailableError("the coordinator", "it is gone")
        return answers.pop()

    with served(read) as place:
        status, text = get(f"{place}/metrics")
        assert status == 503
        assert text.startswith("the node does not answer: ")
        assert "it is gone" in text
        answers.append(one())
        assert get(f"{place}/metrics")[0] == 200


def test_connections_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_endpoint, "_CONNECTIONS_MAX", 2)
    with served(one) as place, ExitStack() as idle:
        address = place.removeprefix("http://").split(":")
        links = [
            idle.enter_context(socket.create_connection((address[0], int(address[1])), 20))
            for _ in range(3)
        ]
        said = links[2].makefile().read()
        assert said.startswith("HTTP/1.0 503 ")
        assert "connections are open, which is the limit; try again" in said
        links[0].close()
        wait_until(lambda: get(f"{place}/metrics")[0] == 200)


def test_a_token_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    with served(one, Access(port=0, token_file=file)) as place:
        for wrong in ("", "Bearer", "Bearer secre", "Basic secret", "Bearer secret2", "Bearer ä"):
            assert get(f"{place}/metrics", wrong) == (401, "give the token of the endpoint\n")
        assert get(f"{place}/metrics", "Bearer secret")[0] == 200


def test_it_speaks_tls(tmp_path: Path) -> None:
    identity = settle_service(tmp_path, "127.0.0.1", has_tls=True)
    certificate, key = tmp_path / "certificate", tmp_path / "key"
    certificate.write_text(identity.certificate)
    key.write_text(identity.key)
    with served(one, Access(port=0, certificate=certificate, key=key)) as place:
        assert get(f"{place}/metrics", trusted=certificate)[0] == 200
        with pytest.raises(urllib.error.URLError):
            get(f"{place}/metrics")
        assert get(f"{place}/metrics", trusted=certificate)[0] == 200


def test_others_cannot_read_it_without_a_token_and_tls(tmp_path: Path) -> None:
    token, certificate, key = (tmp_path / name for name in ("token", "certificate", "key"))
    for access, what in (
        (Access("0.0.0.0"), "need a token and TLS"),
        (Access("0.0.0.0", token_file=token), "--tls-certificate"),
        (Access("::", certificate=certificate, key=key), "--token-file"),
        (Access(certificate=certificate), "both --tls-certificate and --tls-key"),
        (Access("::", prefix="--metrics-"), "give --metrics-token-file, --metrics-tls-cert"),
        (Access("localhost"), "'localhost' is not an IP address"),
    ):
        with pytest.raises(ConfigError, match=what):
            MetricsEndpoint(one, access)
    certificate.write_text("no certificate")
    key.write_text("no key")
    with pytest.raises(ConfigError, match="are not a certificate and its key"):
        MetricsEndpoint(one, Access(port=0, certificate=certificate, key=key))
    with served(one) as place, pytest.raises(ConfigError, match="Address already in use"):
        MetricsEndpoint(one, Access(port=int(place.rpartition(":")[2])))
    token.write_text(" \n")
    with pytest.raises(ConfigError, match="has no token"):
        MetricsEndpoint(one, Access(port=0, token_file=token))
    Access("0.0.0.0", 0, token, certificate, key).check()
