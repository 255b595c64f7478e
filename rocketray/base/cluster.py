"""The choice of the node that a program uses: by its data directory, or by its cluster's name.

A cluster has a name on its Ray, so programs find it from every machine of that Ray, without a path.
A data directory is a shortcut on the node's own machine. The choice is the same for programs,
commands and apps: what is given, then ROCKETRAY_CLUSTER, then ROCKETRAY_DATA, then the cluster of
the settings file (settings_file.py), then the data directory (data_directory.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocketray.errors import ConfigError, InvalidNameError

from .data_directory import DATA_VARIABLE, data_directory
from .settings_file import read_settings

CLUSTER_VARIABLE = "ROCKETRAY_CLUSTER"
DEFAULT_CLUSTER = "default"
"""The name of a cluster that was not given one."""
# The name becomes a part of the namespace of the cluster's actors in Ray, so it has no character
# that could end it.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster by its name; ``ray_address`` is its Ray, by default the one that Ray finds.

    Ray looks at RAY_ADDRESS, and then for a Ray that was started on this machine.
    """

    name: str
    ray_address: str | None = None

    def __post_init__(self) -> None:
        check_cluster(self.name)


def check_cluster(name: str) -> None:
    """Raise :class:`InvalidNameError` unless a cluster may have that name."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InvalidNameError(
            f"cluster name {name!r:.80}: a name has 1 to 64 ASCII letters, digits, _ or -, and "
            "begins with a letter or digit"
        )


def chosen_node(
    data: Path | str | None = None,
    cluster: str | None = None,
    ray_address: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Path | Cluster:
    """Return the cluster, or the data directory, of the node to use.

    Raises:
        ConfigError: both are given, or a Ray without a cluster; or one of them is empty.
        InvalidNameError: the cluster's name cannot be one.
    """
    if cluster is None and data is None:
        variables = os.environ if environ is None else environ
        cluster = variables.get(CLUSTER_VARIABLE)
        if cluster == "":
            raise ConfigError(
                f"{CLUSTER_VARIABLE} is empty; set it to a cluster's name, or unset it"
            )
        # The environment takes precedence over the file, whichever of the two each of them names.
        if cluster is None and DATA_VARIABLE not in variables:
            settings = read_settings(environ)
            if settings.cluster is not None:
                return Cluster(settings.cluster, ray_address or settings.ray_address)
    if cluster is not None and data is not None:
        raise ConfigError(
            f"data directory {str(data)!r:.80} and cluster {cluster!r:.80} are both given; name one"
        )
    if cluster is not None:
        return Cluster(cluster, ray_address)
    if ray_address is not None:
        raise ConfigError(
            f"the Ray at {ray_address} may have several clusters; give the cluster's name, too "
            f"({DEFAULT_CLUSTER!r}, unless rocketray start was given --cluster)"
        )
    return data_directory(data, environ)
