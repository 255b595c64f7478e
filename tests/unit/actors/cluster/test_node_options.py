"""Which options a node refuses, and which of them hold for its next start, too."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from rocketray.actors.cluster.node_options import NodeOptions, settle_rules
from rocketray.errors import ConfigError


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o1777, 0])
def test_a_mode_that_shuts_the_node_out_is_refused(mode: int) -> None:
    with pytest.raises(ConfigError, match="not 700 to 777"):
        NodeOptions(data_mode=mode)


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_fetch_port_that_does_not_exist_is_refused(port: int) -> None:
    with pytest.raises(ConfigError, match=f"fetch port {port} is not 1 to 65535"):
        NodeOptions(fetch_port=port)


@pytest.mark.parametrize("given", [{}, {"cluster": "orders"}, {"ray_address": "127.0.0.1:1"}])
def test_to_join_a_cluster_its_name_and_its_ray_are_needed(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="needs its name and its Ray: --cluster NAME and --ray-a"):
        NodeOptions(joins=True, **given)  # type: ignore[arg-type]


def test_a_start_warns_of_modules_that_were_hardly_meant_also_the_next_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for options in (NodeOptions(allow_predicates=("os", "shop.filters")), NodeOptions()):
        caplog.clear()
        assert settle_rules(tmp_path, options).allowed == ("os", "shop.filters")
        [record] = caplog.records
        assert record.levelno == logging.WARNING
        assert record.getMessage().startswith("--allow-predicates os lets every group run any ")


def test_a_joined_disk_may_have_the_register_and_no_option_of_the_whole_cluster() -> None:
    join = NodeOptions(cluster="orders", ray_address="10.0.0.1:6379", joins=True)
    join.check_joining()
    replace(join, register="file:///shared").check_joining()
    with pytest.raises(ConfigError, match=r"^--queues-per-process: a disk that joins cluster"):
        replace(join, queues_per_process=2).check_joining()
    with pytest.raises(ConfigError, match=r"^--ack: a disk that joins cluster"):
        replace(join, ack="disk").check_joining()
    with pytest.raises(ConfigError, match=r"^--scrub-rate: a disk that joins cluster"):
        replace(join, scrub_rate=0).check_joining()


def test_a_scrub_rate_below_0_is_refused() -> None:
    with pytest.raises(ConfigError, match="scrub rate -1 is negative; give 0 to turn it off"):
        NodeOptions(scrub_rate=-1)


def test_an_ack_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"ack 'none' is not 'memory' or 'disk'"):
        NodeOptions(ack="none")  # type: ignore[arg-type]
