"""Processes that work with a journal, for tests: each says "ready", waits for a line, does its work, answers."""

from __future__ import annotations

import json
import os
import random
import socket
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, Self

from lakegate.config import JournalSettings
from lakegate.errors import ClockError
from lakegate.journal.factory import open_journal
from lakegate.journal.journal import Journal
from lakegate.model.batch import SourceFile
from lakegate.model.run import Run


def claim(journal: Journal, index: str, count: str) -> list[str]:
    """Claim the same files as everybody else, a few at a time, in an order of our own."""
    names = [f"file:///data/{number}" for number in range(int(count))]
    random.Random(index).shuffle(names)
    run = Run(run_id=f"run-{index}", tables=(), branch="", status="planned", started_at=datetime.now(UTC))
    token = journal.begin(run)
    got = []
    for start in range(0, len(names), 7):
        files = [SourceFile(uri=name, size_bytes=1, version="1", rows=1) for name in names[start : start + 7]]
        got += [file.uri for file in journal.claim(run.run_id, "nyc.trips", files, token=token).claimed]
    return got


def begin(journal: Journal, index: str, run: str) -> str:
    journal.begin(Run.model_validate_json(run))
    return "begun"


def take_over(journal: Journal, index: str, run_id: str) -> bool:
    return journal.take_over(run_id) is not None


def work_ahead(journal: Journal, index: str, run_id: str) -> tuple[int, bool, str]:
    """Try to take a run over, and to begin one, by a clock that is an hour ahead."""

    class Ahead(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return super().now(tz) + timedelta(hours=1)

    for name, module in list(sys.modules.items()):
        if name.startswith("lakegate.") and getattr(module, "datetime", None) is datetime:
            vars(module)["datetime"] = Ahead
    abandoned, taken = len(journal.abandoned()), journal.take_over(run_id) is not None
    try:
        journal.begin(Run(run_id="ahead", tables=(), branch="", status="created", started_at=datetime.now(UTC)))
    except ClockError as error:
        return abandoned, taken, error.message
    return abandoned, taken, ""


def hold(journal: Journal, index: str, name: str) -> None:
    """Take a turn and keep it until we are killed."""
    with journal.lock(name, timeout_s=60) as ours:
        answer(ours)
        sys.stdin.read()


def answer(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


MOST = 4
"""How many workers there can be at once."""
WORK: dict[str, Callable[..., Any]] = {work.__name__: work for work in (claim, begin, take_over, work_ahead, hold)}


def serve(settings: str, home: str, index: str, work: str, *words: str) -> None:
    late = work == "open"
    if late:
        answer("ready")
        sys.stdin.readline()
    journal = open_journal(JournalSettings.model_validate_json(settings), Path(home))
    if late:
        answer(len(journal.runs()))
    else:
        answer("ready")
        sys.stdin.readline()
        answer(WORK[work](journal, index, *words))
    sys.stdin.read()  # keep what we hold until the test ends us


def fork_workers(ends: Sequence[int], words: Sequence[str]) -> None:
    """Fork a worker for each socket, and close its end when it is gone, so that the test sees it."""
    workers = {}
    for index, end in enumerate(ends):
        pid = os.fork()
        if pid == 0:
            for standard in (0, 1):
                os.dup2(end, standard)
            for one in ends:
                os.close(one)
            answer(os.getpid())
            settings, home, *rest = words
            serve(settings, home, str(index), *rest)
            return
        workers[pid] = end
    while workers:
        ended, _ = os.wait()
        os.close(workers.pop(ended))


def main() -> None:
    """Fork workers for all tests, before anything is opened: loading the code takes longer than all of them do."""
    forked: list[int] = []
    with socket.socket(fileno=int(sys.argv[1])) as orders:
        while True:
            length, ends, _, _ = socket.recv_fds(orders, 4, MOST)
            if not length:
                break
            with orders.makefile("rb") as stream:
                environment, words = json.loads(stream.read(int.from_bytes(length, "big")))
            pid = os.fork()
            if pid == 0:
                orders.close()
                os.environ.clear()
                os.environ.update(environment)
                fork_workers(ends, words)
                return
            forked.append(pid)
            for end in ends:
                os.close(end)
    for pid in forked:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
