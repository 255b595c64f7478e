"""A shard process with the system services in a process of its own, to be killed: stores numbers and prints what is stored."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from support.nodes.local_node import LocalNode

TOPICS = ("%RETRY%g", "%DLQ%g")


def main(data: Path) -> None:
    """Send the numbers 0, 1, … to each topic; print each once it is acknowledged."""
    with LocalNode(data) as node, node.producer() as producer:
        for topic in TOPICS:
            node.topics.ensure(topic, 1)
        for number in itertools.count():
            for topic in TOPICS:
                producer.send(topic, b"%d" % number)
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
