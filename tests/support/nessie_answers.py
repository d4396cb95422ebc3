"""A stand-in for Nessie that answers with what it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import httpx

from lakegate.catalogs.nessie.catalog import NessieCatalog
from lakegate.catalogs.nessie.client import NessieClient, Reference, ReferenceAnswer, Request
from lakegate.credentials.tokens import Token
from lakegate.model.refs import CommitRequest, Ref

URI = "http://nessie.test:19120/api/v2"
TOKEN = "s3cr3t-t0k3n"
HASH = "ab" * 32
MAIN = Ref(name="main", hash=HASH)
CHANGE = CommitRequest(branch="main", base=HASH, message="m", namespaces=(("nyc",),))
FOUND = {"reference": {"type": "BRANCH", "name": "main", "hash": HASH}}

Handler = Callable[[httpx.Request], httpx.Response]


class Server:
    """Answers with what it is given, in turn (the last again and again), and remembers what it was asked."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        # A response can be read once only; the same answer may be given again.
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


def contents(*found: object) -> dict[str, object]:
    return {"contents": list(found), "effectiveReference": {"type": "BRANCH", "name": "main", "hash": HASH}}


def answer(body: Any, status: int = 200) -> httpx.Response:
    return httpx.Response(status, json=body)


def refusal(
    status: int, code: str, message: str, conflicts: Iterable[tuple[str, list[str] | None]] = ()
) -> httpx.Response:
    details = {
        "type": "REFERENCE_CONFLICTS",
        "conflicts": [
            {"conflictType": kind, "key": None if key is None else {"elements": key}, "message": "…"}
            for kind, key in conflicts
        ],
    }
    return answer({"status": status, "message": message, "errorCode": code, "errorDetails": details}, status)


class GivenToken:
    """A token that is ``others``, one after the other, each time it is renewed."""

    def __init__(self, text: str, *others: str) -> None:
        self._texts = [text, *others]

    def value(self) -> str:
        return self._texts[0]

    def renew(self) -> None:
        self._texts = self._texts[1:] or self._texts


def catalog(server: Handler, *, token: Token | None = None, uri: str = URI) -> NessieCatalog:
    return NessieCatalog(uri, "file:///lake", token=token, timeout_s=5, transport=httpx.MockTransport(server))


def client(server: Handler, *, timeout_s: float = 5) -> NessieClient:
    return NessieClient(URI, timeout_s=timeout_s, retry_wait_s=0.001, transport=httpx.MockTransport(server))


def find_main(client: NessieClient) -> Reference:
    return client.read("trees/main", Request("find branch or tag 'main'", ref="main"), ReferenceAnswer).reference
