"""Only who has the token sees pages, only this machine's names reach them, and writes need more."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nodes.console_client import ConsoleClient
from support.nodes.console_node import serve_all
from support.nodes.local_node import LocalNode

from rocketray.console.access import ConsoleAccess
from rocketray.console.changes.audit_log import AUDIT_FILE
from rocketray.console.changes.form_fields import EXPRESSION_MAX
from rocketray.console.pages.page_views import PAGES
from rocketray.message import Message

EVIL = "<script>alert('1')</script>\"'><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleClient]:
    with LocalNode(tmp_path_factory.mktemp("node") / "data") as node:
        serve_all(node)
        node.topics.ensure("Trade", 1)
        with node.producer() as producer:
            message = Message("Trade", EVIL.encode(), "<b>tag", ("<key>",), {"<name>": EVIL})
            producer.send_many("Trade", [message])
        with ConsoleClient(node.data, lambda: node) as console:
            yield console


@pytest.mark.parametrize("path", ["/", "/tail.json", "/tail/stream", *(f"/{one}" for one in PAGES)])
def test_nothing_is_shown_without_the_token(console: ConsoleClient, path: str) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": "rocketray_console=1"}):
        answer = console.ask(path, headers)
        assert answer.status == 401
        assert "Trade" not in answer.text
    assert console.ask(f"{path}?token=wrong").status == 401
    assert console.ask(f"{path}?token=").status == 401


def test_the_link_gives_a_cookie_and_goes_to_an_address_without_the_token(
    console: ConsoleClient,
) -> None:
    answer = console.ask(f"/groups?a=1&token={console.access.token}")
    assert (answer.status, answer.headers["Location"]) == (303, "/groups?a=1")
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert console.access.token not in cookie
    assert console.ask("/groups", {"Cookie": cookie.partition(";")[0]}).status == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost.evil:1"])
def test_another_host_name_is_refused(console: ConsoleClient, host: str) -> None:
    answer = console.get("/topics", Host=host)
    assert answer.status == 421
    assert "Trade" not in answer.text


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:8480"])
def test_names_of_this_machine_are_not(console: ConsoleClient, host: str) -> None:
    assert console.get("/topics", Host=host).status == 200


def test_each_answer_forbids_what_is_not_of_the_console(console: ConsoleClient) -> None:
    for path in ("/", "/topics", "/topics.json", "/nothing", "/static/console.js"):
        headers = console.get(path).headers
        assert headers["Content-Security-Policy"].startswith("default-src 'self'; ")
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
    assert console.get("/topics").headers["Cache-Control"] == "no-store"


def test_pages_have_no_inline_script_or_style(console: ConsoleClient) -> None:
    for path in ("/tail?topic=Trade", *(f"/{one}?topic=Trade" for one in PAGES)):
        text = console.get(path).text
        assert "<script src=" in text
        assert "<script>" not in text
        assert " style=" not in text
        assert " onclick=" not in text


def test_texts_of_messages_are_escaped(console: ConsoleClient) -> None:
    for by, value in (("place", "0@0"), ("key", "%3Ckey%3E"), ("key", "%3Cscript%3Ealert(2)")):
        text = console.get(f"/message?topic=Trade&by={by}&value={value}").text
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert "<b>tag" not in text
    assert "&lt;script&gt;" in console.get("/message?topic=Trade&by=place&value=0@0").text
    failed = console.get("/topic?topic=%3Cscript%3Ealert(3)%3C/script%3E")
    assert failed.status == 400
    assert "<script>alert" not in failed.text


def test_a_write_needs_the_page_s_token_and_the_same_origin(console: ConsoleClient) -> None:
    token = {"Authorization": f"Bearer {console.access.token}"}
    path, form = "/letters/redrive", {"group": "audit"}
    audit = console.data / AUDIT_FILE
    before = audit.read_bytes() if audit.exists() else b""
    assert console.get(path).status == 405
    for csrf in ({}, {"csrf": "wrong"}, {"csrf": console.access.token}):
        assert console.ask(path, token, method="POST", form={**form, **csrf}).status == 403
    right = {**form, "csrf": console.access.csrf}
    assert console.ask(path, {}, method="POST", form=right).status == 401
    foreign = {**token, "Origin": "http://evil.example"}
    assert console.ask(path, foreign, method="POST", form=right).status == 403
    assert (audit.read_bytes() if audit.exists() else b"") == before


def test_a_write_is_in_the_audit_log(console: ConsoleClient) -> None:
    answer = console.post("/waiting/recall", handle="no handle")
    assert answer.status == 400
    path = console.data / AUDIT_FILE
    line = json.loads(path.read_text().splitlines()[-1])
    assert (line["what"], line["handle"], line["peer"]) == ("recall", "no handle", "127.0.0.1")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_write_that_cannot_be_logged_does_not_begin(
    console: ConsoleClient, tmp_path: Path
) -> None:
    path = console.data / AUDIT_FILE
    path.unlink(missing_ok=True)
    path.symlink_to(tmp_path / "elsewhere")
    try:
        assert console.post("/letters/redrive", group="audit").status == 503
        assert console.get("/letters.json").record["jobs"] == {}
    finally:
        path.unlink()


def test_inputs_have_limits(console: ConsoleClient) -> None:
    long = "a" * (EXPRESSION_MAX + 1)
    assert console.get(f"/tail.json?topic=Trade&filter={long}").status == 400
    assert console.get(f"/filter/check.json?kind=SQL92&filter={long}").status == 400
    assert console.get(f"/message?topic=Trade&value={long}").status == 400
    assert console.post("/waiting/recall", handle="a" * 100_000).status == 413
    for name in ("..%2fserving.py", "nothing.css", "serving.py"):
        assert console.get(f"/static/{name}").status == 404
    assert console.get("/language/xx").status == 404
    leaving = console.get("/language/zh?to=//evil.example")
    assert (leaving.status, leaving.headers["Location"]) == (303, "/")


def test_only_loopback_is_private() -> None:
    assert ConsoleAccess("127.0.0.1").is_loopback
    assert ConsoleAccess("::1").is_loopback
    assert ConsoleAccess("localhost").is_loopback
    assert not ConsoleAccess("0.0.0.0").is_loopback
    assert not ConsoleAccess("10.0.0.1").is_loopback
    assert ConsoleAccess().token != ConsoleAccess().token
