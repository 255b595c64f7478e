"""The forms of a register's URL, for help and errors; this module loads none of the registers."""

from __future__ import annotations

DIRECTORY_URL = "file:///DIR"  # also on a shared file system (file_register.py)
_OBJECTS_URL = "s3://BUCKET/PREFIX (also gs, az)"  # an object store (object_register.py)
_ETCD_URL = "etcd://HOST:2379/PREFIX"  # etcd_register.py
REGISTER_URLS = f"{DIRECTORY_URL}, {_OBJECTS_URL} or {_ETCD_URL}"
