"""What is wrong, at the top of ``rocketray status``: the list of the console's overview."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketray.cli.terminal.output import counted, emit

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
    emit(records, (*_shown(troubles, health, hosts), ""), as_json=as_json)


def _shown(
    troubles: Sequence[Trouble], health: HealthReadings, hosts: Sequence[Host]
) -> Iterator[str]:
    for trouble in troubles:
        yield f"{trouble.kind.value}: {trouble.text}"
        if trouble.advice:
            yield f"    {trouble.advice}"
    if not troubles:
        groups = {group.group for group in health.node.groups or ()}
        yield (
            f"nothing is wrong; looked at: {counted(health.node.topics, 'topic')}, "
            f"{counted(len(groups), 'group')}, {counted(len(hosts), 'host')} of apps"
        )
