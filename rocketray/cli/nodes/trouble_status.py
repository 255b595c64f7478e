"""What is wrong, at the top of ``rocketray status``: the list of the console's overview."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketray.base.quantity import counted
from rocketray.cli.terminal.output import emit

from .app_status import host_fields

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rocketray.groups.group_descriptions import GroupDescription
    from rocketray.hosting.host_status import Host
    from rocketray.services.health.troubles import HealthReadings, Trouble


def show_troubles(
    health: HealthReadings,
    hosts: Sequence[Host],
    only: Sequence[GroupDescription] | None,
    *,
    as_json: bool,
) -> None:
    """Print what is wrong, the worst first, or that nothing is; as JSON, a line for each.

    With *only* some groups, troubles of others are left out.
    """
    from rocketray.services.health.troubles import troubles_of  # NumPy
    from rocketray.views.trouble_records import trouble_record, troubles_of_hosts  # the same

    troubles = troubles_of(health, troubles_of_hosts([host_fields(host) for host in hosts], None))
    if only is not None:
        names = {group.group for group in only}
        troubles = [trouble for trouble in troubles if trouble.group in (None, *names)]
    records = ({"trouble": trouble_record(trouble)} for trouble in troubles)
    looked = _looked_at(health, only, len(hosts))
    emit(records, (*_shown(troubles, looked), ""), as_json=as_json)


def _looked_at(health: HealthReadings, only: Sequence[GroupDescription] | None, hosts: int) -> str:
    chosen = (health.node.groups or ()) if only is None else only
    topics = health.node.topics if only is None else len({group.topic for group in chosen})
    groups = len({group.group for group in chosen})
    return (
        f"{counted(topics, 'topic')}, {counted(groups, 'group')}, {counted(hosts, 'host')} of apps"
        f"{'' if only is None else '; see the others with: rocketray status'}"
    )


def _shown(troubles: Sequence[Trouble], looked_at: str) -> Iterator[str]:
    for trouble in troubles:
        yield f"{trouble.kind.value}: {trouble.text}"
        if trouble.advice:
            yield f"    {trouble.advice}"
    if not troubles:
        yield f"nothing is wrong; looked at: {looked_at}"
