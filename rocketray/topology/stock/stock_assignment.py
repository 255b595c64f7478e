"""Updates of Faust's assignor: the coordinator assigns, and tables, routers and leaders ask it.

In Kafka one member of a group computes a plan for all. Here the coordinator assigns queues, and
each instance gives its own assignor its queues, in the form that such a plan would have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from faust.assignor.client_assignment import ClientAssignment, ClientMetadata
from faust.assignor.partition_assignor import ConsumerProtocolMemberAssignment


def plan_assignment(
    app: Any, actives: Mapping[str, Sequence[int]], queue_count: Callable[[str], int | None]
) -> dict[str, set[int]]:
    """Give *app*'s assignor its *actives*; return all that it has to read, by topic.

    Every instance reads every queue of a global table's changelog, as in Faust's own plan.
    """
    assignor = app.assignor
    url = str(assignor._url)  # noqa: SLF001  # contract-tested
    assignment = ClientAssignment(
        actives={topic: list(queues) for topic, queues in actives.items()}, standbys={}
    )
    counts = {topic: queue_count(topic) for topic in app.tables.changelog_topics}
    assignor._global_table_standby_assignments({url: assignment}, counts)  # noqa: SLF001  # the same
    changelogs, others = _divide(app, {url: assignment.actives})
    metadata = ClientMetadata(
        assignment=assignment,
        url=url,
        changelog_distribution=changelogs,
        external_topic_distribution=others,
        topic_groups=dict.fromkeys(assignment.actives, 0),
    )
    plan = assignment.kafka_protocol_assignment(app.tables)
    compressed = assignor._compress(metadata.dumps())  # noqa: SLF001  # the same
    assignor.on_assignment(
        ConsumerProtocolMemberAssignment(assignor.version, sorted(plan), compressed)
    )
    return {topic: set(queues) for topic, queues in plan}


def note_distribution(app: Any, actives: Mapping[str, Mapping[str, list[int]]]) -> None:
    """Give *app*'s assignor the topics and queues of every instance, by the instance's URL."""
    changelogs, others = _divide(app, actives)
    app.assignor.changelog_distribution = changelogs
    app.assignor.external_topic_distribution = others


def _divide(
    app: Any, actives: Mapping[str, Mapping[str, list[int]]]
) -> tuple[dict[str, dict[str, list[int]]], dict[str, dict[str, list[int]]]]:
    """Split *actives* into the changelogs and the other topics."""
    changelogs: dict[str, dict[str, list[int]]] = {url: {} for url in actives}
    others: dict[str, dict[str, list[int]]] = {url: {} for url in actives}
    for url, topics in actives.items():
        for topic, queues in topics.items():
            is_changelog = topic in app.tables.changelog_topics
            (changelogs if is_changelog else others)[url][topic] = queues
    return changelogs, others
