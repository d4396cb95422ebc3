"""Whether a server answers, asked the cheapest way: a few bytes over a plain socket, no client library.

These run on every command, so they must cost milliseconds.
"""

from __future__ import annotations

import re
import socket
from pathlib import Path

# RFC 9113 §3.4: what a client says first; §6.5: an empty SETTINGS frame (length 0, type 4, no flags, stream 0).
_HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
_HTTP2_SETTINGS = 4
_HTTP2_FRAME_HEADER_BYTES = 9
_NESSIE_QUESTION = b"GET /api/v2/config HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
_NESSIE_ANSWER = b"HTTP/1.1 200 "
_MINISTACK_QUESTION = b"GET /_ministack/health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
_MINISTACK_ANSWER = b"HTTP/1.1 200 "

_TAIL_BYTES = 65536
_MAX_LINE = 300
_TELLING = re.compile(r"\bERROR\b|\bFATAL\b|\bSEVERE\b|Exception|Caused by|Error:|^Error |Could not|[Uu]nrecognized")
_BIND_FAILED = re.compile(r"BindException|[Aa]ddress already in use|Port \d+ seems to be in use|QuarkusBindException")


def nessie_answers(port: int, *, timeout_s: float = 1.0) -> bool:
    """Return whether Nessie serves its API v2 on ``port``."""
    return _ask(port, _NESSIE_QUESTION, len(_NESSIE_ANSWER), timeout_s) == _NESSIE_ANSWER


def spark_answers(port: int, *, timeout_s: float = 1.0) -> bool:
    """Return whether a gRPC server speaks on ``port``: an HTTP/2 server opens with a SETTINGS frame."""
    frame = _ask(port, _HTTP2_HELLO, _HTTP2_FRAME_HEADER_BYTES, timeout_s)
    return len(frame) == _HTTP2_FRAME_HEADER_BYTES and frame[3] == _HTTP2_SETTINGS


def ministack_answers(port: int, *, timeout_s: float = 1.0) -> bool:
    """Return whether MiniStack serves on ``port``."""
    return _ask(port, _MINISTACK_QUESTION, len(_MINISTACK_ANSWER), timeout_s) == _MINISTACK_ANSWER


def telling_line(log: Path) -> str | None:
    """Return the line of a log that most likely tells what went wrong: the last error, else the last line."""
    lines = [line.strip() for line in _tail(log).splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.search(line) and not line.startswith("at ")]
    chosen = (telling or lines)[-1:]
    return chosen[0][:_MAX_LINE] if chosen else None


def failed_to_bind(log: Path) -> bool:
    """Return whether a server gave up because somebody else had its port."""
    return _BIND_FAILED.search(_tail(log)) is not None


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _ask(port: int, question: bytes, answer_bytes: int, timeout_s: float) -> bytes:
    answer = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
            connection.sendall(question)
            while len(answer) < answer_bytes:
                part = connection.recv(answer_bytes - len(answer))
                if not part:
                    break
                answer += part
    except OSError:
        return b""
    return answer
