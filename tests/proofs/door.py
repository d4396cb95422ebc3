"""The door, attacked at random: requests with anything in them, by writers whose tokens are valid, or were.

Methods, prefixes, names, headers and bodies are drawn anew for each request, most of them nearly right. Each must be
answered with less than 500; only the writer's own branch may change, and only by its own token; whatever is on a branch
can be read; and no file that was there before is gone or another.
"""

from __future__ import annotations

import hashlib
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from lakegate.iceberg.files import TableFiles, local_path
from lakegate.iceberg.reader import IcebergTableReader
from lakegate.model.refs import CommitRequest
from proofs.result import ProofResult
from support.gate_requests import changed, places, requests
from support.gate_world import GateWorld, memory_world, pyiceberg_writer, served, writer_token

LONG_S, SHORT_S = 3600.0, 30.0
_MOST_TOLD = 20
_TABLES_ON_BRANCH = 40
_OK_BELOW = 500
_METHODS = ("POST",) * 12 + ("GET",) * 4 + ("DELETE", "HEAD", "PUT", "PATCH", "OPTIONS")
_PREFIXES = (
    *("wap%2Fday",) * 90,
    *("main", "wap%2Fother", "wap%252Fday", "wap/day", "WAP%2FDAY", "wap%2Fday%2F..%2Fother", "-", "tag:first", ""),
    *("wap%2Fday%20", "wap%2Fday@0", "commit:00", "%00", "%FF%FE", "..", "wap%5Cday", "wap%2Fday%23", "ma%69n"),
)
_NAMES = (
    *("mine", "trips", "new", "other", "nyc", "none") * 3,
    *("", "..", ".", "a/b", "a\x1fb", "\x00", "mine__quarantine", "system", "x" * 300, "é", "n\u0307yc", "a.b", "MINE"),
    *("mine@main", "mine#1", "mine?x=1", "%2e%2e", "`mine`", "trips\n", "\ud7ff", "-1", "null", "information_schema"),
)
_PATHS = (
    "namespaces",
    "namespaces/{0}",
    "namespaces/{0}/properties",
    "namespaces/{0}/tables",
    "namespaces/{0}/tables/{1}",
    "namespaces/{0}/tables/{1}/metrics",
    "namespaces/{0}/tables/{1}/sign",
    "namespaces/{0}/tables/{1}/credentials",
    "namespaces/{0}/register",
    "namespaces/{0}/views",
    "namespaces/{0}/views/{1}",
    "tables/rename",
    "transactions/commit",
    "oauth/tokens",
    "config",
    "{0}/{1}",
)
_QUERIES = (
    "",
    "",
    "",
    "?purgeRequested=true",
    "?snapshots=refs",
    "?pageSize=-1",
    "?pageToken=%00",
    "?parent=%1F",
    "?a&&=",
)
_VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        0,
        -1,
        1,
        2,
        3,
        2**31,
        2**63,
        -(2**70),
        1.5,
        "",
        "main",
        "nyc",
        "mine",
        "trips",
        "append",
        "..",
        "\x00",
    ),
    *(
        "\ud7ff",
        "s3://x",
        "file:///etc/passwd",
        "variant",
        "decimal(99,9)",
        "x" * 10_000,
        [],
        {},
        [[]],
        {"": {}},
        ["nyc"],
    ),
)


@dataclass
class _Attack:
    """A lake with published tables, two writers, and one token of yesterday; and what came of requests."""

    world: GateWorld
    chooser: random.Random
    failures: list[str] = field(default_factory=list)
    answers: Counter[int] = field(default_factory=Counter)
    requests: int = 0

    def __post_init__(self) -> None:
        self._reader = IcebergTableReader(TableFiles())
        self._publish()
        openings = [self.world.open("wap/day", "o1"), self.world.open("wap/other", "o2")]
        self.writer = self.world.writer(openings[0])
        over = openings[0].model_copy(
            update={"opening_id": "o0", "deadline": (datetime.now(UTC) - timedelta(days=1)).replace(microsecond=0)}
        )
        self.world.openings.known["o0"] = over
        good = writer_token(openings[0])
        self._own = f"Bearer {good}"
        self._tokens = (
            *(self._own,) * 40,
            f"Bearer {writer_token(over)}",
            f"Bearer {good[:-1]}",
            f"bearer  {good}",
            "",
        )
        with served(self.world.app()) as url, pyiceberg_writer(url, openings[0]) as catalog:
            catalog.create_table("nyc.mine", _ROWS.schema).append(_ROWS)
        self._bodies = requests(self.writer.load("mine")["metadata"])
        self._files = self._seen()
        self._heads = self._refs()

    def _publish(self) -> None:
        """Publish a table, as a run would: by its pointer."""
        first = self.world.open("wap/first", "first")
        with served(self.world.app()) as url, pyiceberg_writer(url, first) as catalog:
            catalog.create_namespace("nyc")
            catalog.create_table("nyc.trips", _ROWS.schema).append(_ROWS)
        catalog_ = self.world.catalog
        puts = [
            one.model_copy(update={"content_id": None}) for one in catalog_.list_tables(catalog_.get_ref("wap/first"))
        ]
        main = catalog_.get_ref("main")
        catalog_.commit(
            CommitRequest(branch="main", base=main.hash, message="publish", puts=tuple(puts), namespaces=(("nyc",),))
        )
        catalog_.create_tag("first", catalog_.get_ref("main"))
        self.world.seal(first)

    def send(self) -> None:
        """Send one request, and look what it changed."""
        self.requests += 1
        method, path, content, headers = self._request()
        said = f"{method} {path} {dict(headers)} {content[:1_500]!r}"
        try:
            response = self.writer.client.request(method, path, content=content, headers=dict(headers))
        except Exception as error:  # noqa: BLE001 - whatever the app raises, its client gets no answer
            self.failures.append(f"no answer ({error!r}): {said}")
            return
        self.answers[response.status_code] += 1
        if response.status_code >= _OK_BELOW:
            self.failures.append(f"{response.status_code} {response.text[:500]}: {said}")
        self._look(said, is_own=headers.get("Authorization") in (self._own, self._own.replace("Bearer", "bearer ")))

    def _look(self, said: str, *, is_own: bool) -> None:
        now = self._refs()
        moved = {name for name in now.keys() | self._heads.keys() if now.get(name) != self._heads.get(name)}
        self._heads = now
        if moved - ({"wap/day"} if is_own else set()):
            self.failures.append(f"{sorted(moved)} changed: {said}")
        if moved:
            self._require_readable(said)

    def _require_readable(self, said: str) -> None:
        branch = self.world.catalog.get_ref("wap/day")
        tables = list(self.world.catalog.list_tables(branch))
        try:
            for pointer in tables:
                self._reader.require_loadable(pointer, "wap/day")
                list(self._reader.files(pointer))
        except Exception as error:  # noqa: BLE001 - that the branch is damaged is what's looked for
            self.failures.append(f"wap/day can't be read any more ({error!r}): {said}")
            tables = []
        if len(tables) > _TABLES_ON_BRANCH or not any(str(one.table) == "nyc.mine" for one in tables):
            self._start_again(branch.hash)

    def _start_again(self, head: str) -> None:
        """Take the branch back to where the writer's table was."""
        catalog = self.world.catalog
        first = [commit.hash for commit in catalog.history(head, operations=True) if "nyc.mine" in commit.tables][-2]
        catalog.assign_ref(catalog.get_ref("wap/day"), catalog.get_ref("wap/day").model_copy(update={"hash": first}))
        self._heads = self._refs()

    def _request(self) -> tuple[str, str, bytes, Mapping[str, str]]:
        draw = self.chooser
        headers = {"Authorization": draw.choice(self._tokens), "Content-Type": "application/json"}
        if draw.random() < 0.1:
            headers["Idempotency-Key"] = draw.choice(("1", "x" * 300, "019b0000-0000-7000-8000-000000000000"))
        if draw.random() < 0.05:
            headers["If-None-Match"] = draw.choice(("*", '"x"', "W/\x7f"))
        method, path, body = draw.choice(self._bodies)
        if draw.random() < 0.25:
            names = [
                quote(draw.choice(_NAMES).encode("utf-8", "surrogatepass"), safe=draw.choice(("", "/%"))) for _ in "12"
            ]
            method, path = draw.choice(_METHODS), draw.choice(_PATHS).format(*names)
        for _ in range(draw.choice((0, 1, 1, 2, 3))):
            at = draw.choice(list(places(body)))
            body = changed(body, at, draw.choice(_VALUES), drops=bool(at) and draw.random() < 0.3)
        content = json.dumps(body).encode()
        if draw.random() < 0.05:
            cut = draw.randrange(len(content) + 1)
            content = content[:cut] + draw.choice((b"", b"\xff", b"\x00", b"[" * 5_000, b'"'))
        return method, f"/v1/{draw.choice(_PREFIXES)}/{path}{draw.choice(_QUERIES)}", content, headers

    def _refs(self) -> Mapping[str, str]:
        return {ref.name: ref.hash for ref in self.world.catalog.list_refs()}

    def _seen(self) -> Mapping[Path, str]:
        files = (one for one in local_path(self.world.root).rglob("*") if one.is_file())
        return {one: hashlib.sha256(one.read_bytes()).hexdigest() for one in files}

    def spoiled(self) -> list[str]:
        """Return the files that were there before the first request, and are gone or others now."""
        now = self._seen()
        return [f"{path} is gone, or another" for path, digest in self._files.items() if now.get(path) != digest]


_ROWS = pa.table({"id": [1, 2, 3]})


def prove(seconds: float, seed: int, *, tell: Callable[[str], None] = lambda _: None) -> ProofResult:
    """Attack the door for so long."""
    with tempfile.TemporaryDirectory(prefix="lakegate-door-") as folder:
        attack = _Attack(memory_world(Path(folder)), random.Random(seed))
        until = time.monotonic() + seconds
        while time.monotonic() < until and len(attack.failures) < _MOST_TOLD:
            attack.send()
            if attack.requests % 10_000 == 0:
                tell(f"{attack.requests:,} requests")
        failures = [*attack.failures, *attack.spoiled()]
    answers = ", ".join(f"{count:,} of {status}" for status, count in sorted(attack.answers.items()))
    return ProofResult("door", attack.requests, failures, answers)
