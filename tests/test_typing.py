"""What a type checker says of users' programs: the documents' pass ``mypy --strict``, slips do not.

It is a part of ``make lint``: without a cache of mypy's it takes half a minute of a processor.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import faust
import pytest
from support.harness.page_runner import blocks_of
from support.harness.patience import patience
from support.harness.source_tree import ROOT

import rocketray as rr
from rocketray.base.ack_mode import AckMode

PROGRAM = """\
from collections.abc import AsyncIterator

import rocketray as rr


class Order(rr.Record, serializer="json"):
    order_id: str
    amount: float = 1.0


app = rr.App("shop")
orders: rr.Topic[Order] = app.topic("Orders", value_type=Order, tag="order_id")
plain: rr.Topic = app.topic("Plain")


async def of_orders(stream: rr.Stream[Order]) -> None: ...


async def of_numbers(stream: rr.Stream[int]) -> None: ...


"""
# Each line is added to the program: what mypy says of it, or nothing where it is right.
LINES = {
    "rr.Prodcuer()": 'maybe "Producer"',
    "rr.Strem": 'maybe "Stream"',
    "rr.Client().qurey('T', 'k')": 'has no attribute "qurey"',
    "rr.Producer(timout_s=1)": 'Unexpected keyword argument "timout_s"',
    "rr.Producer().send('T', 'text')": 'has incompatible type "str"; expected "bytes"',
    "rr.Producer().send('T', b'', tag='x')": 'Unexpected keyword argument "tag"',
    "rr.Producer(group='g', check=lambda message: 'yes')": "has incompatible type",
    "rr.Producer().send('T', b'', ack='all')": f'expected "Literal{[*get_args(AckMode)]}',
    "rr.Producer().send_many('T', bodies=['text'])": "incompatible",
    "app.agnet(orders)": 'maybe "agent"',
    "app.agent(orders, tgas='pay')": 'Argument "tgas" to "agent"',
    "Order('o', amonut=2.0)": 'Unexpected keyword argument "amonut"',
    "Order(amount=2.0)": 'Missing positional argument "order_id"',
    "Order('o', 'much')": 'incompatible type "str"; expected "float"',
    "Order('o').amonut": 'maybe "amount"',
    "Order('o', amount=2.0).derive(amount=3.0).order_id": "",
    "Order.loads(Order('o').dumps()).asdict()": "",
    "app.Table('t', key_type=str, value_type=Order)": "",
    "app.Table('t', default=0)": 'expected "Callable[[], Any]',
    "app.Table('t', default=int).tumbling(60).relative_to_field(Order.amount)": "",
    "app.SetTable('s').hopping(60, 30).relative_to_field(Order.amount)": "",
    "app.GlobalTable('g', default=int).tumbling(60).relative_to_stream()": "",
    "app.agent(orders, tags='pay')": "",
    "app.agent(orders)(print)": "incompatible",
    "app.agent(orders)(of_orders)": "",
    "app.agent(orders)(of_numbers)": 'expected "Callable[[Stream[Order',
    "app.agent(plain)(of_numbers)": "",
    "app.agent('Orders')(of_numbers)": "",
    "app.agent(app.channel())(of_numbers)": "",
    "app.topic('T', value_type=Order('o'))": 'expected "type[',
    "print(orders.send(value=Order('o')))": "",
    "print(orders.send(value=b'serialized'))": "",
    "orders.send(value=3)": 'expected "Order | bytes | None"',
    "orders.send(value={'order_id': 'o'})": 'expected "Order | bytes | None"',
    "print(plain.send(value=3))": "",
    "app.topic('T', quues=2)": 'did you mean "queues"',
    "app.sink(orders, chekpoint='c')": 'did you mean "checkpoint"',
    "app.timer('5 s')": "incompatible",
}
STREAMS = """
async def handle(stream: rr.Stream[Order]) -> None:
    async for order in stream:
        reveal_type(order)
    async for some in stream.take(5, within=1):
        reveal_type(some)
    async for event in stream.events():
        print(event.value.amount)


@app.agent(orders)
async def answer(stream: rr.Stream[Order]) -> AsyncIterator[str]:
    async for order in stream:
        yield order.order_id


@app.timer(5.0)
async def tick() -> None:
    await tick()


@app.task
async def begin() -> None:
    await begin()


@app.crontab("30 18 * * *")
async def close() -> None:
    await close()


async def send() -> None:
    stored = await orders.send(value=Order("o"))
    reveal_type((await stored).offset)
    reveal_type((await stored).recall_handle)
    reveal_type(rr.Producer().send_oneway("T", b""))
    reveal_type(rr.Producer().send_async("T", b"").result().queue_id)
    reveal_type((await rr.AsyncProducer().send("T", b"")).message_id)
"""


ANYTHING = "from typing import Any\n\ndef __getattr__(name: str) -> Any: ...\n"
STUBS = {"fastavro.pyi": ANYTHING, "payment_pb2.pyi": ANYTHING}
"""Types of what the programs of a page import, and the tests do not have."""

pytestmark = pytest.mark.lint
CACHE = ROOT / ".mypy_cache" / "programs"  # kept: half a minute of a processor
SLIPS = PROGRAM + "\n".join(LINES) + STREAMS


def page_programs() -> dict[str, str]:
    """The programs that readers write to files; of one that a page shows twice, the last form."""
    pages = (
        ROOT / "README.md",
        *sorted(ROOT.glob("docs/tutorial/*.md")),
        *sorted(ROOT.glob("docs/how-to/*.md")),
    )
    return {
        f"{page.stem}_{block.title}".replace("-", "_"): block.text
        for page in pages
        for block in blocks_of(page)
        if block.language == "python" and block.title
    }


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What mypy says of users' programs, as a user runs it: nothing of this project's settings.

    Once, as it reads our types and those below them each time.
    """
    directory = tmp_path_factory.mktemp("programs")
    programs = {**page_programs(), "slips.py": SLIPS}
    imported = {
        block.title: block.text
        for block in blocks_of(ROOT / "docs/how-to/codecs.md")
        if block.title == "framing.py"
    }
    for name, text in {**programs, **STUBS, **imported}.items():
        (directory / name).write_text(text)
    installed = not Path(str(rr.__file__)).is_relative_to(ROOT / "rocketray")
    options = ["--config-file=", "--follow-imports=silent", f"--cache-dir={CACHE}"]
    options += ["--disable-error-code=import-untyped"]  # of Arrow, which ships no types
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *options, *programs],
        cwd=directory,
        env={**os.environ, "MYPYPATH": "" if installed else str(ROOT)},
        capture_output=True,
        text=True,
        timeout=patience(600),
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.proves(
    "documentation",
    "The programs of the README, the tutorial and the how-to pages pass `mypy --strict`",
)
@pytest.mark.timeout(600)
def test_the_programs_of_the_pages_are_typed(said: list[str]) -> None:
    assert len(page_programs()) > 20
    assert "README_tour.py" in page_programs()
    assert "README_tour.py" in page_programs()
    assert [line for line in said if not line.startswith(("slips", "Found"))] == []


@pytest.mark.timeout(600)
def test_slips_are_found_and_nothing_else(said: list[str]) -> None:
    first = PROGRAM.count("\n") + 1
    for number, (line, wanted) in enumerate(LINES.items(), first):
        found = [text for text in said if text.startswith(f"slips.py:{number}: error")]
        assert bool(found) == bool(wanted), (line, found)
        assert wanted in "".join(found), (line, found)
    last = first + len(LINES)
    places = [re.match(r"slips\.py:(\d+): error", text) for text in said]
    assert [place.string for place in places if place and int(place[1]) >= last] == []
    types = [text.partition("Revealed type is ")[2] for text in said if "Revealed" in text]
    revealed = [text.replace("builtins.", "") for text in types]
    assert revealed == [
        '"slips.Order"',
        '"typing.Sequence[slips.Order]"',
        '"int"',
        '"str | None"',
        '"None"',
        '"int"',
        '"str"',
    ]


def test_the_record_that_checkers_see_is_fausts() -> None:
    """Its methods are named by hand in typed_record.py."""
    assert issubclass(rr.Record, faust.Record)
    source = (ROOT / "rocketray/topology/values/typed_record.py").read_text()
    named = set(re.findall(r"def (\w+)\(", source)) - {"__init_subclass__"}
    assert named <= set(dir(faust.Record))
