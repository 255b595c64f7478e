"""The positions of the fields of RocketMQ's records, queue entries and index files, in bytes.

Offsets after BORNHOST move by 12 for an IPv6 born host, and again for an IPv6 store host. Commands
that need only these numbers start without Numba: this module imports none of the package's others.
"""

from __future__ import annotations

MAGIC, BODY_CRC, QUEUE_ID, FLAG, QUEUE_OFFSET = 4, 8, 12, 16, 20
PHYSICAL_OFFSET, SYS_FLAG, BORN_TIMESTAMP, BORN_HOST = 28, 36, 40, 48
MAGIC_V1 = -626843481  # 0xdaa320a7
MAGIC_V2 = -626843477  # 0xdaa320ab: the topic length has two bytes, for topics over 127 bytes
TOPIC_V1_MAX_BYTES = 127  # its length is a byte that Java reads with a sign
SYS_FLAG_BORN_IPV6, SYS_FLAG_STORE_IPV6 = 0x10, 0x20  # those hosts have 20 bytes
SYS_FLAG_COMPRESSED = 0x1
SYS_FLAG_TRANSACTION = 0xC  # two bits
SYS_FLAG_PREPARED = 0x4  # set in PREPARED and in ROLLBACK, which are in no queue
SYS_FLAG_INNER_BATCH = 0x80
HOST_BYTES = 8  # IPv4 address and a port of four bytes
HOST_IPV6_EXTRA = 12  # an IPv6 address is 16 bytes
RECORD_MIN_BYTES = 84 + 4 + 1 + 2  # fixed fields, body length, topic length, properties length

ENTRY_BYTES = 20  # i64 physical offset, i32 size, i64 tags code
TAGS_CODE_EXT_MAX = -2147483649  # at or below: the address of a ConsumeQueueExt unit, no hash

INDEX_HEADER_BYTES = 40  # four i64, two i32: see store/index/index_file.py
INDEX_SLOT_BYTES = 4
INDEX_ENTRY_BYTES = 20  # i32 hash, i64 physical offset, i32 seconds after begin, i32 previous
