"""The program that Spark runs as its Python: it has the warm Python fork the process (warm_server).

It runs with ``-I -S`` and loads built-in modules only, so it begins in some ten milliseconds. It
then stands for the forked process, which has its standard streams: it ends with that process, and
sends it the signal that asks it to end, also one that arrives while the process is being forked.
Without a warm Python that answers, or for anything but a module, it becomes the ordinary Python.

One connection, for one process:

    server: READY
    client: the number of arguments, the arguments, the directory and the environment, each ended by
            a zero byte; with the first byte come the descriptors 0, 1 and 2
    server: the id of the process, in digits; nothing if it refuses
"""

from __future__ import annotations

# Built-in modules, which are loaded without a search of the path. ``signal`` would load ``enum``.
import _signal  # type: ignore[import-not-found]  # typeshed has no stub of it
import _socket
import os
import select
import sys

VARIABLE = "ROCKETRAY_WARM_PYTHON"  # the path of the server's socket
READY = b"."
_READY_S = 5.0  # Spark waits for 10
_ID_MAX_BYTES = 32  # Linux's process ids have seven digits at most
_BLOCK_BYTES = 1 << 16
_ASKS_TO_END = {_signal.SIGTERM}


def _fork_there(path: bytes, arguments: list[bytes]) -> int | None:
    """Return the id of the process that the server forked; None if it did not."""
    link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        link.settimeout(_READY_S)
        link.connect(path)
        if link.recv(1) != READY:
            return None
        link.settimeout(None)
        settings = [name + b"=" + value for name, value in os.environb.items()]
        texts = [b"%d" % len(arguments), *arguments, os.getcwdb(), *settings]  # noqa: PTH109 - pathlib takes 10 ms
        request = b"".join(text + b"\0" for text in texts)
        streams = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
        sent = link.sendmsg([request], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
        while sent < len(request):
            sent += link.send(request[sent : sent + _BLOCK_BYTES])
        link.shutdown(_socket.SHUT_WR)
        return int(link.recv(_ID_MAX_BYTES) or b"0") or None
    except OSError:
        # Whatever is wrong: the caller runs the ordinary Python instead.
        return None
    finally:
        link.close()


def _stand_for(process_id: int) -> None:
    """Return when the process has ended; pass on the signal that asks it to end."""
    try:
        process = os.pidfd_open(process_id)
    except ProcessLookupError:
        # It has ended already.
        return
    _signal.signal(_signal.SIGTERM, lambda number, _: _signal.pidfd_send_signal(process, number))
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _ASKS_TO_END)
    waiting = select.poll()
    waiting.register(process, select.POLLIN)
    waiting.poll()


def _main(arguments: list[str]) -> None:
    path = os.environb.get(VARIABLE.encode())
    forked = None
    if path and arguments[:1] == ["-m"]:
        _signal.pthread_sigmask(_signal.SIG_BLOCK, _ASKS_TO_END)
        forked = _fork_there(path, [os.fsencode(one) for one in arguments[1:]])
    if forked is None:
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _ASKS_TO_END)
        os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - as Spark asked for
    _stand_for(forked)


if __name__ == "__main__":
    _main(sys.argv[1:])
