"""Run a Python program in a fork of the process that listens at a socket (:mod:`support.warm`), as if it ran here.

``python -I -S warm_client.py SOCKET -m MODULE WORDS...``, or ``-c TEXT``, imports next to nothing: it starts at once.
"""

from __future__ import annotations

import marshal
import os
import signal
import socket
import sys

COLD = 0
"""In place of a process id: the environment asks for an interpreter that was started differently."""
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCONT)
_NUMBER = 4


def main(address: str, words: list[str]) -> int:
    """Return how the program ended that Python would run by ``words``, as :func:`os.waitpid` does."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        opened = [number for number in (0, 1, 2) if _is_open(number)]
        order = marshal.dumps((words, dict(os.environ), os.getcwd(), opened))  # noqa: PTH109 - pathlib is slow
        socket.send_fds(connection, [to_bytes(len(order))], opened)
        connection.sendall(order)
        pid = read(connection)
        if pid == COLD:
            os.execv(sys.executable, [sys.executable, *words])  # noqa: S606 - no shell is needed

        def pass_on(number: int, _frame: object) -> None:
            try:  # noqa: SIM105 - to import contextlib takes longer than all else here
                os.kill(pid, number)
            except ProcessLookupError:
                pass  # it has just ended, and how is about to be read

        for number in _PASSED_ON:
            signal.signal(number, pass_on)
        while os.WIFSTOPPED(status := read(connection)):
            os.kill(os.getpid(), signal.SIGSTOP)
        return status


def to_bytes(number: int) -> bytes:
    """Return a number as it is sent."""
    return number.to_bytes(_NUMBER, "big")


def read(connection: socket.socket) -> int:
    """Return a number that was sent."""
    data = connection.recv(_NUMBER, socket.MSG_WAITALL)
    if len(data) < _NUMBER:
        sys.exit("warm_client: the process that was asked is gone")
    return int.from_bytes(data, "big")


def end(status: int) -> None:
    """End as the program did."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    end(main(sys.argv[1], sys.argv[2:]))
