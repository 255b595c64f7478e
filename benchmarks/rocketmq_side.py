"""RocketMQ's side of against_rocketmq.py: its client, which answers questions.

A question is a line of JSON on stdin, its answer one on stdout behind "= ". Jython runs this file
in a JVM, so it is Python 2.7, and each call of the client is a call in that JVM. Jython makes a
message slower than Java does, so the clock stands still while messages are made.
"""

import json
import sys
import time

from java.lang import Exception as JavaError
from java.lang import System
from java.util import ArrayList
from java.util.concurrent import Semaphore
from java.util.concurrent.atomic import AtomicLong
from org.apache.rocketmq.client.consumer import DefaultMQPushConsumer, MessageSelector
from org.apache.rocketmq.client.consumer.listener import (
    ConsumeConcurrentlyStatus,
    MessageListenerConcurrently,
)
from org.apache.rocketmq.client.producer import DefaultMQProducer, SendCallback
from org.apache.rocketmq.common.consumer import ConsumeFromWhere
from org.apache.rocketmq.common.message import Message

FILLING = "\0" * 88
IN_FLIGHT = 1000
TIMEOUT_S = 120


def made(topic, number):
    """A message of 100 bytes with a tag, a key and two properties; one in 100 has another tag."""
    tag = "pay" if number % 100 else "rare"
    message = Message(topic, tag, "order-%d" % number, bytearray("%012d%s" % (number, FILLING)))
    message.putUserProperty("region", "eu")
    message.putUserProperty("amount", str(number % 1000))
    return message


class Producer:
    """The producer's questions."""

    def __init__(self, name_server):
        self._producer = DefaultMQProducer("against")
        self._producer.setNamesrvAddr(name_server)
        self._producer.start()

    def topic(self, name, queues):
        """Create a topic."""
        self._producer.createTopic("TBW102", name, queues, None)
        return {}

    def first(self, topic):
        """Send until a message is stored."""
        while True:
            try:
                self._producer.send(made(topic, 1))
            except JavaError:  # the broker is not known yet
                time.sleep(0.02)
            else:
                return {}

    def one(self, topic, count):
        took = []
        for number in range(count):
            message = made(topic, number)
            begun = System.nanoTime()
            self._producer.send(message)
            took.append(System.nanoTime() - begun)
        return {"seconds": sum(took) / 1e9, "p50_us": sorted(took)[count // 2] / 1e3}

    def lists(self, topic, count, size):
        took = 0
        for first in range(0, count, size):
            messages = ArrayList([made(topic, first + at) for at in range(size)])
            begun = System.nanoTime()
            self._producer.send(messages)
            took += System.nanoTime() - begun
        return {"seconds": took / 1e9}

    def unbatched(self, topic, count):
        room, failed = Semaphore(IN_FLIGHT), AtomicLong()

        class Outcome(SendCallback):
            def onSuccess(self, _):
                room.release()

            def onException(self, _):
                failed.incrementAndGet()
                room.release()

        outcome, making, begun = Outcome(), 0, System.nanoTime()
        for number in range(count):
            before = System.nanoTime()
            message = made(topic, number)
            making += System.nanoTime() - before
            room.acquire()
            self._producer.send(message, outcome)
        room.acquire(IN_FLIGHT)
        took = System.nanoTime() - begun - making
        return {"seconds": took / 1e9, "failed": failed.get()}

    def paced(self, topic, count, interval_s):
        """Send at a fixed rate; a body is the time of sending."""
        begun = System.nanoTime()
        for number in range(count):
            wait_s = number * interval_s - (System.nanoTime() - begun) / 1e9
            if wait_s > 0:
                time.sleep(wait_s)
            body = bytearray("%020d" % System.nanoTime())
            self._producer.send(Message(topic, "pay", body), Quiet())
        return {}


class Quiet(SendCallback):
    """Whatever the outcome is."""

    def onSuccess(self, _):
        pass

    def onException(self, error):
        raise error


class Counting(MessageListenerConcurrently):
    """Counts messages, and notes the first and the last time."""

    def __init__(self):
        self.count = AtomicLong()
        self.first_ns = self.last_ns = 0

    def consumeMessage(self, messages, _):
        now_ns = System.nanoTime()
        self.first_ns = self.first_ns or now_ns
        self.last_ns = now_ns
        self.count.addAndGet(len(messages))
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS


class Timing(MessageListenerConcurrently):
    """Notes how long each message took."""

    def __init__(self):
        self.took = []

    def consumeMessage(self, messages, _):
        now_ns = System.nanoTime()
        for message in messages:
            self.took.append(now_ns - int(message.getBody().tostring()))
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS


class Consumer:
    """The consumer's questions."""

    def __init__(self, name_server):
        self._name_server = name_server
        self._timing = self._listening = None

    def _subscribed(self, topic, tags, sql, listener):
        consumer = DefaultMQPushConsumer("against-%d" % System.nanoTime())
        consumer.setNamesrvAddr(self._name_server)
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        consumer.subscribe(
            topic, MessageSelector.bySql(sql) if sql else MessageSelector.byTag(tags)
        )
        consumer.registerMessageListener(listener)
        consumer.start()
        return consumer

    def read(self, topic, tags, sql, matching):
        """Read what matches as a new group: from the first message to the last."""
        listener, end = Counting(), time.time() + TIMEOUT_S
        consumer = self._subscribed(topic, tags, sql, listener)
        while listener.count.get() < matching and time.time() < end:
            time.sleep(0.005)
        consumer.shutdown()
        found = listener.count.get()
        assert found >= matching, "%d of %d messages came" % (found, matching)
        return {"seconds": (listener.last_ns - listener.first_ns) / 1e9}

    def listen(self, topic):
        """Begin to read a topic."""
        self._timing = Timing()
        self._listening = self._subscribed(topic, "*", None, self._timing)
        return {}

    def heard(self, wait_s, clear):
        """Wait for a time; how many messages were read so far, and how long they took."""
        time.sleep(wait_s)
        took = sorted(self._timing.took)
        if clear:
            del self._timing.took[:]
        answer = {"count": len(took)}
        if took:
            answer["p50_ms"] = took[len(took) // 2] / 1e6
            answer["p99_ms"] = took[len(took) * 99 // 100] / 1e6
        return answer

    def leave(self):
        self._listening.shutdown()
        return {}


def main(role, name_server):
    side = {"producer": Producer, "consumer": Consumer}[role](name_server)
    sys.stdout.write("= {}\n")
    sys.stdout.flush()
    while True:
        line = sys.stdin.readline()
        if not line:
            return
        question = json.loads(line)
        try:
            answer = getattr(side, question.pop("do"))(**{str(k): v for k, v in question.items()})
        except (Exception, JavaError) as error:
            answer = {"error": repr(error)}
        sys.stdout.write("= %s\n" % json.dumps(answer))
        sys.stdout.flush()


main(*sys.argv[1:])
System.exit(0)  # threads of the client would keep the JVM
