"""The names of OpenTelemetry's semantic conventions for messaging, version 1.45, in one place.

They are in development: some are about to be renamed (``messaging.rocketmq.…`` to ``rocketmq.…``).
So nothing else in the project has them as text.
"""

from __future__ import annotations

SYSTEM, SYSTEM_NAME = "messaging.system", "rocketmq"
OPERATION_NAME, OPERATION_TYPE = "messaging.operation.name", "messaging.operation.type"
SEND, RECEIVE, PROCESS, SETTLE = "send", "receive", "process", "settle"
"""The operations, which begin the names of their spans."""
DESTINATION, PARTITION = "messaging.destination.name", "messaging.destination.partition.id"
GROUP = "messaging.consumer.group.name"
MESSAGE_ID, BODY_SIZE = "messaging.message.id", "messaging.message.body.size"
BATCH_COUNT = "messaging.batch.message_count"
TAG, KEYS = "messaging.rocketmq.message.tag", "messaging.rocketmq.message.keys"
CONSUMPTION_MODEL = "messaging.rocketmq.consumption_model"
ERROR_TYPE = "error.type"
QUEUE_OFFSET = "rocketray.queue_offset"
"""The conventions have no name for it."""
