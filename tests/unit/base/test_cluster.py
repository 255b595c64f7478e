from __future__ import annotations

from pathlib import Path

import pytest

from rocketray.base.cluster import Cluster, chosen_node
from rocketray.errors import ConfigError, InvalidNameError


def test_what_is_given_comes_before_the_environment() -> None:
    both = {"ROCKETRAY_CLUSTER": "orders", "ROCKETRAY_DATA": "/srv/data"}
    assert chosen_node(environ=both) == Cluster("orders")
    assert chosen_node("/other", environ=both) == Path("/other")
    assert chosen_node(cluster="pay", environ=both) == Cluster("pay")
    assert chosen_node(environ={"ROCKETRAY_DATA": "/srv/data"}) == Path("/srv/data")
    assert chosen_node(environ={}) == Path("rocketray-data")
    found = chosen_node(cluster="pay", ray_address="10.0.0.1:6379", environ={})
    assert found == Cluster("pay", "10.0.0.1:6379")


@pytest.mark.parametrize(
    ("data", "cluster", "ray_address", "environ", "said"),
    [
        ("/data", "pay", None, {}, "data directory '/data' and cluster 'pay' are both given"),
        (None, None, "10.0.0.1:6379", {}, "give the cluster's name, too"),
        (None, None, None, {"ROCKETRAY_CLUSTER": ""}, "ROCKETRAY_CLUSTER is empty"),
        ("", None, None, {}, "the data directory is empty"),
    ],
)
def test_a_choice_that_names_no_node_or_two_is_refused(
    data: str | None,
    cluster: str | None,
    ray_address: str | None,
    environ: dict[str, str],
    said: str,
) -> None:
    with pytest.raises(ConfigError, match=said):
        chosen_node(data, cluster, ray_address, environ)


@pytest.mark.parametrize("name", ["", "a b", "-a", "a/b", "x" * 65, "ä", "a\n", 7])
def test_a_name_that_no_cluster_can_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidNameError, match="a name has 1 to 64 ASCII letters"):
        chosen_node(cluster=name, environ={})
