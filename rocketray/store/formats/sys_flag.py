"""The bits of a record's SYSFLAG, and their names for people.

Every bit is stored unchanged. Their meaning here:

    COMPRESSED, with its type in COMPRESSION_TYPE   the body is inflated when it is read
    MULTI_TAGS                                      only displayed; RocketMQ ignores it too
    PREPARED, COMMIT, ROLLBACK in TRANSACTION       PREPARED and ROLLBACK are in no queue
    BORN_IPV6, STORE_IPV6                           that host has 20 bytes, not 8
    NEED_UNWRAP, INNER_BATCH                        the body is a batch (see inner_batch.py)

Source: RocketMQ 5.3.3, ``MessageSysFlag``.
"""

from __future__ import annotations

from rocketray.kernels.layout import SYS_FLAG_BORN_IPV6, SYS_FLAG_STORE_IPV6

COMPRESSED = 0x1
MULTI_TAGS = 0x2
TRANSACTION = 0xC  # two bits: 0 is "none"
PREPARED = 0x4  # in no queue until it is committed
COMMIT = 0x8
ROLLBACK = 0xC  # in no queue and no index
BORN_IPV6 = SYS_FLAG_BORN_IPV6
STORE_IPV6 = SYS_FLAG_STORE_IPV6
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80
COMPRESSION_TYPE = 0x700  # three bits: 0 is zlib of old clients
SETTABLE = MULTI_TAGS | TRANSACTION  # the others follow from the content of a record

_TRANSACTIONS = {PREPARED: "PREPARED", COMMIT: "COMMIT", ROLLBACK: "ROLLBACK"}
_COMPRESSION_TYPES = {0: "ZLIB", 1: "LZ4", 2: "ZSTD", 3: "ZLIB"}
_SINGLE_BITS = {
    MULTI_TAGS: "MULTI_TAGS",
    BORN_IPV6: "BORN_IPV6",
    STORE_IPV6: "STORE_IPV6",
    NEED_UNWRAP: "NEED_UNWRAP",
    INNER_BATCH: "INNER_BATCH",
}
# sum is the union here: each of the keys is a bit of its own.
_KNOWN = COMPRESSED | TRANSACTION | COMPRESSION_TYPE | sum(_SINGLE_BITS)


def sys_flag_names(sys_flag: int) -> list[str]:
    """Return the names of the bits, one text each; bits unknown to RocketMQ as a hex number."""
    names = []
    kind = sys_flag >> 8 & 7  # COMPRESSION_TYPE
    kind_name = _COMPRESSION_TYPES.get(kind, f"type {kind}")
    if sys_flag & COMPRESSED:
        names.append(f"COMPRESSED({kind_name})")
    elif kind:
        names.append(f"INFLATED({kind_name})")  # RocketMQ's decoder clears only bit 0
    if sys_flag & TRANSACTION:
        names.append(_TRANSACTIONS[sys_flag & TRANSACTION])
    names += [name for bit, name in _SINGLE_BITS.items() if sys_flag & bit]
    unknown = sys_flag & ~_KNOWN & 0xFFFFFFFF
    return [*names, f"{unknown:#x}"] if unknown else names
