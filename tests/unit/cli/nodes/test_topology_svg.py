"""The picture of a cluster: well-formed, whole, and nothing of it is code."""

from __future__ import annotations

import random
import re
from typing import Any
from xml.etree import ElementTree as ET

from rocketray.cli.nodes.topology_svg import numbers_text, topology_svg


def disk(uuid: str, zone: str = "", **other: Any) -> dict[str, Any]:
    return {
        "disk": uuid,
        "machine": "m",
        "directory": "/srv/rocketray",
        "zone": zone,
        "isCoordinator": False,
        "isDrained": False,
        "freeBytes": 5_000_000_000,
        **other,
    }


def texts(svg: str) -> list[str]:
    root = ET.fromstring(svg)
    return [each.text or "" for each in root.iter("{http://www.w3.org/2000/svg}text")]


def test_runs_of_queues_are_one() -> None:
    assert numbers_text([7, 0, 2, 5, 6]) == "0, 2, 5-7"
    assert numbers_text([3]) == "3"


def test_what_a_disk_is_and_does_is_told() -> None:
    disks = [
        disk("a", "z1", isCoordinator=True, machine="first"),
        disk("b", "z2", freeBytes=None),
        disk("c", "z2", isDrained=True),
    ]
    found = texts(topology_svg(disks, {"Trade": {"a": [0, 1, 2], "b": [3]}}))
    assert {"zone z1", "zone z2", "first (coordinator)", "4.7 GiB free"} <= {*found}
    assert {"does not answer", "4.7 GiB free, takes no queues", "no queues"} <= {*found}
    assert {"Trade: 0-2", "Trade: 3"} <= {*found}


def test_names_are_text_and_nothing_else() -> None:
    evil = disk("<script>", "</svg>", machine="a & b", directory='"><g>')
    svg = topology_svg([evil], {})
    assert {"<script>", "zone </svg>", "a & b", '"><g>'} <= {*texts(svg)}
    assert "<script" not in svg


def test_each_queue_is_on_its_disk_once_and_inside_the_picture(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(50):
        disks = [disk(f"d{at}", rng.choice(["", "x", "y"])) for at in range(rng.randint(1, 12))]
        topics: dict[str, dict[str, list[int]]] = {}
        for number in range(rng.randint(0, 6)):
            queues: dict[str, list[int]] = {}
            for queue in range(rng.choice([1, 4, 300])):
                queues.setdefault(rng.choice(disks)["disk"], []).append(queue)
            topics[f"Topic{number}"] = queues
        svg = topology_svg(disks, topics)
        assert svg == topology_svg(disks[::-1], topics)
        root = ET.fromstring(svg)
        width, height = int(root.attrib["width"]), int(root.attrib["height"])
        found: dict[str, dict[str, list[int]]] = {name: {} for name in topics}
        at_disk = topic = ""
        for each in root.iter("{http://www.w3.org/2000/svg}text"):
            assert 0 < int(each.attrib["x"]) < width
            assert 0 < int(each.attrib["y"]) < height
            text = each.text or ""
            if re.fullmatch(r"d\d+", text):
                at_disk = text
            named = re.match(r"(Topic\d+):", text)
            if named or text.startswith("   "):
                topic = named[1] if named else topic
                for part in text.partition(":")[2].split() if named else text.split():
                    first, _, last = part.strip(",").partition("-")
                    numbers = range(int(first), int(last or first) + 1)
                    found[topic].setdefault(at_disk, []).extend(numbers)
        assert found == topics
