"""What readers can see: main, and tags and commits of its history; nothing else, however it's spelled."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest

from lakegate.catalogs.rules import ROOT_HASH
from lakegate.gate.contents import Published
from lakegate.gate.refusals import RefusedError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Commit, Ref, TablePointer
from support.rest_world import RestWorld, valid


def named(table: str) -> TablePointer:
    """Return the state of a table that is never loaded."""
    return TablePointer(
        table=TableIdentifier.parse(table),
        content_id=None,
        metadata_location=f"file:///lake/{uuid4().hex}.metadata.json",
        snapshot_id=1,
        schema_id=0,
        spec_id=0,
        sort_order_id=0,
    )


@pytest.fixture
def lake(world: RestWorld) -> RestWorld:
    """A table on main, an unaudited one on a branch, and a tag of each."""
    world.commit(named("nyc.trips"))
    main = world.catalog.get_ref("main")
    world.catalog.create_tag("y2026-11", main)
    world.catalog.create_tag("closed/2026/11", main)
    branch = world.catalog.create_branch("wap/nyc.trips_1", main)
    world.catalog.create_branch("plain", main)
    branch = world.commit(named("nyc.unaudited"), branch=branch.name)
    world.commit(named("nyc.unaudited"), branch="plain")
    world.catalog.create_tag("of-a-branch", branch)
    world.commit(named("nyc.later"))
    return world


def tables(world: RestWorld, prefix: str) -> list[str]:
    response = world.client().get(f"/v1/{prefix}/namespaces/nyc/tables")
    assert response.status_code == 200, response.text
    return [one["name"] for one in response.json()["identifiers"]]


def test_quarantined_rows_are_not_served(lake: RestWorld) -> None:
    lake.commit(named("nyc.trips__quarantine"))
    assert tables(lake, "main") == ["later", "trips"]
    for method in ("GET", "HEAD"):
        response = lake.client().request(method, "/v1/main/namespaces/nyc/tables/trips__quarantine")
        assert response.status_code == 404


def test_main_is_the_newest_state_and_a_tag_or_commit_an_older_one(lake: RestWorld) -> None:
    first = lake.catalog.get_ref("y2026-11").hash
    assert tables(lake, "main") == ["later", "trips"]
    assert tables(lake, "tag:y2026-11") == tables(lake, "tag%3Ay2026-11") == ["trips"]
    assert tables(lake, "tag:closed%2F2026%2F11") == tables(lake, "tag:closed%252F2026%252F11") == ["trips"]
    assert tables(lake, f"commit:{first}") == ["trips"]


def spellings(lake: RestWorld) -> Iterator[str]:
    branch, tagged = lake.catalog.get_ref("wap/nyc.trips_1"), lake.catalog.get_ref("of-a-branch")
    main = lake.catalog.get_ref("main")
    for name in (branch.name, "plain"):
        yield from (name, f"branch:{name}", f"tag:{name}", f"commit:{name}", f"main:{name}", f"main@{name}")
        yield from (f"main/../{name}", f"../{name}", f"..%2f{name}", f"main%00{name}", f"tag:y2026-11@{name}")
    for commit in (branch.hash, branch.hash[:16], branch.hash.upper(), tagged.hash):
        yield from (commit, f"commit:{commit}", f"main@{commit}", f"@{commit}", f"tag:{commit}", f"main*{commit}")
        yield from (f"tag:y2026-11@{commit}", f"commit:{main.hash}@{commit}", f"tag:main@{commit}")
    yield from (
        "tag:of-a-branch",
        "tag:main",
        "tag:",
        "commit:",
        ":",
        "MAIN",
        "main ",
        " main",
        "main\n",
        "-",
        "main~1",
    )
    yield from (
        f"commit:{'0' * 64}",
        f"commit:{main.hash[:20]}",
        "commit:..",
        "%2e%2e",
        "..",
        "main%2F..",
        "main;",
        "*",
    )


def test_nothing_else_can_be_seen_however_it_is_spelled(lake: RestWorld) -> None:
    client = lake.client()
    for prefix in spellings(lake):
        for sent in (quote(prefix, safe="/:@*~"), quote(quote(prefix, safe=""), safe="")):
            response = client.get(f"/v1/{sent}/namespaces/nyc/tables/unaudited")
            assert response.status_code in (403, 404), (sent, response.text)
            valid("IcebergErrorResponse", response.json())
        refused = client.get("/v1/config", params={"warehouse": prefix})
        assert refused.status_code == 404, prefix


def test_a_branch_and_nothing_are_the_same_to_a_client(lake: RestWorld) -> None:
    client = lake.client()
    there, nothing = (client.get(f"/v1/tag:{name}/namespaces").json()["error"] for name in ("plain", "absent"))
    assert there["message"].replace("plain", "absent") == nothing["message"]


@pytest.mark.parametrize(
    ("warehouse", "prefix"),
    [
        ("", "main"),
        ("main", "main"),
        ("tag:y2026-11", "tag:y2026-11"),
        ("tag:closed/2026/11", "tag:closed%2F2026%2F11"),
    ],
)
def test_a_client_chooses_by_its_warehouse(lake: RestWorld, warehouse: str, prefix: str) -> None:
    body = lake.client().get("/v1/config", params={"warehouse": warehouse}).json()
    assert body["overrides"] == {"prefix": prefix}
    assert "trips" in tables(lake, prefix)


def test_a_pinned_client_reads_all_its_tables_from_one_commit(lake: RestWorld) -> None:
    prefix = lake.client().get("/v1/config?warehouse=pinned").json()["overrides"]["prefix"]
    assert prefix == f"commit:{lake.catalog.get_ref('main').hash}"
    lake.commit(named("nyc.newest"))
    assert "newest" not in tables(lake, prefix)
    assert "newest" in tables(lake, "main")


def test_what_main_left_behind_is_not_served_any_longer(lake: RestWorld) -> None:
    client, main = lake.client(), lake.catalog.get_ref("main")
    assert client.get(f"/v1/commit:{main.hash}/namespaces").status_code == 200
    lake.catalog.assign_ref(main, lake.catalog.get_ref("y2026-11"))
    assert client.get(f"/v1/commit:{main.hash}/namespaces").status_code == 404
    assert client.get("/v1/tag:y2026-11/namespaces").status_code == 200


def test_an_empty_lake_can_be_read(world: RestWorld) -> None:
    client = world.client()
    prefix = client.get("/v1/config?warehouse=pinned").json()["overrides"]["prefix"]
    assert prefix == f"commit:{ROOT_HASH}"
    for one in ("main", prefix):
        assert client.get(f"/v1/{one}/namespaces").json() == {"namespaces": []}


class _LongHistory:
    """A main with many commits that counts page reads."""

    def __init__(self, commits: int) -> None:
        self.hashes = [f"{number:064x}" for number in range(commits + 1)]
        self.read = 0

    def get_ref(self, name: str) -> Ref:
        assert name == "main"
        return Ref(name="main", hash=self.hashes[-1])

    def history(self, ref: str, *, until: str | None = None) -> Iterator[Commit]:
        start = self.hashes.index(self.hashes[-1] if ref == "main" else ref)
        for number in range(start, 0, -1):
            if self.hashes[number] == until:
                return
            self.read += 1
            yield Commit(
                hash=self.hashes[number],
                parent=self.hashes[number - 1],
                message="",
                author="",
                time=datetime(2026, 1, 31, tzinfo=UTC),
            )


def test_a_request_reads_a_part_of_a_long_history_and_none_of_it_twice() -> None:
    catalog: Any = _LongHistory(100)
    published = Published(lambda: catalog, commits_per_request=30)
    oldest = f"commit:{catalog.hashes[1]}"
    for read in (60, 90):
        with pytest.raises(RefusedError) as busy:
            published.ref(oldest)
        assert (busy.value.status, busy.value.headers["Retry-After"]) == (503, "1")
        assert catalog.read == read
    assert published.ref(oldest).hash == catalog.hashes[1]
    assert catalog.read == 100
    # From now on, lookups of known and unknown commits are free, and a new commit costs one read.
    assert published.has(catalog.hashes[50])
    assert not published.has("f" * 64)
    assert catalog.read == 100
    catalog.hashes += [f"{number:064x}" for number in range(1000, 1003)]
    assert published.has(catalog.hashes[50])
    assert published.has(catalog.hashes[-2])
    assert catalog.read == 103
