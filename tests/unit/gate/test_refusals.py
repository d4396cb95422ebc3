"""What a writer with a valid token attempts, and what it's told. None of it changes anything."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from lakegate.credentials.openings import claim_in, token_of
from lakegate.iceberg.files import local_path
from lakegate.iceberg.manifests import (
    ManifestList,
    new_listed_manifest,
    no_manifests,
    read_container,
    read_entries,
    read_list,
    write_entries,
    write_list,
)
from support.gate_world import KEY, GateWorld, Writer, memory_world, pyiceberg_writer, served
from support.rest_world import valid

SCHEMA: Any = {"type": "struct", "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}
ROWS = pa.table({"id": [1, 2, 3]})


@dataclass(frozen=True)
class Scene:
    """A writer with a table of its own, ``nyc.mine``, and a published one of others, ``nyc.trips``.

    Attributes:
        mine: Metadata of the writer's table.
        trips: Metadata of the published table.
        other: A branch that somebody else has open.
    """

    world: GateWorld
    writer: Writer
    mine: Any
    trips: Any
    other: str

    def create(self, **body: Any) -> Any:
        return self.writer.send("POST", "namespaces/nyc/tables", {"name": "new", "schema": SCHEMA, **body})

    def change(self, *updates: Any) -> Any:
        return self.writer.commit("mine", updates)

    def append(self, manifest_list: str, **more: Any) -> Any:
        """Append a snapshot with this manifest list to the writer's table."""
        snapshot = {
            "snapshot-id": 42,
            "sequence-number": self.mine["last-sequence-number"] + 1,
            "parent-snapshot-id": self.mine["current-snapshot-id"],
            "timestamp-ms": self.mine["last-updated-ms"] + 1,
            "manifest-list": manifest_list,
            "summary": {"operation": "append"},
            "schema-id": 0,
            **more,
        }
        main = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 42}
        return self.change({"action": "add-snapshot", "snapshot": snapshot}, main)

    def copied(self, source: str, name: str) -> str:
        """Copy a file into the folder of the writer's table, and return its location."""
        target = f"{self.mine['location']}/metadata/{name}"
        shutil.copy(local_path(source), local_path(target))
        return target

    def staged(self, name: str = "new") -> Any:
        """Stage a table, and return its metadata."""
        answer = self.writer.send(
            "POST", "namespaces/nyc/tables", {"name": name, "schema": SCHEMA, "stage-create": True}
        )
        return answer.json()["metadata"]

    def create_staged(self, metadata: Any, name: str = "new") -> Any:
        """Create a table from metadata that the gate handed out, or that the writer made up."""
        updates = [
            {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
            {"action": "upgrade-format-version", "format-version": 2},
            {"action": "add-schema", "schema": metadata["schemas"][0]},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": {"fields": []}},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "set-location", "location": metadata["location"]},
        ]
        return self.writer.commit(name, updates, [{"type": "assert-create"}])

    def elsewhere(self, prefix: str) -> Any:
        """Create a namespace with another prefix than the writer's own."""
        return self.writer.send("POST", f"/v1/{prefix}/namespaces", {"namespace": ["evil"]})

    def with_token(self, token: str) -> Any:
        return self.writer.with_headers(Authorization=f"Bearer {token}").send(
            "POST", "namespaces", {"namespace": ["x"]}
        )


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    world = memory_world(tmp_path_factory.mktemp("lake"))
    with served(world.app()) as url:
        with pyiceberg_writer(url, world.open("wap/yesterday")) as catalog:
            catalog.create_namespace("nyc")
            catalog.create_table("nyc.trips", ROWS.schema).append(ROWS)
        head = world.catalog.get_ref("wap/yesterday")
        world.catalog.assign_ref(world.catalog.get_ref("main"), head)
        opening = world.open("wap/today")
        with pyiceberg_writer(url, opening) as catalog:
            catalog.create_table("nyc.mine", ROWS.schema).append(ROWS)
    writer = world.writer(opening)
    mine, trips = (writer.load(name)["metadata"] for name in ("mine", "trips"))
    return Scene(world, writer, mine, trips, world.open("wap/other").branch)


@pytest.fixture
def scene(shared: Scene) -> Iterator[Scene]:
    """What all attempts share, unchanged by each."""
    catalog = shared.world.catalog
    before = {ref.name: ref.hash for ref in catalog.list_refs()}
    yield shared
    assert {ref.name: ref.hash for ref in catalog.list_refs()} == before


Attempt = Callable[[Scene], Any]
FORBIDDEN, BAD, UNSUPPORTED = (
    (403, "ForbiddenException"),
    (400, "BadRequestException"),
    (406, "UnsupportedOperationException"),
)
MISSING, EXISTS = (404, "NoSuchTableException"), (409, "AlreadyExistsException")
CONFLICT = (409, "CommitFailedException")

OTHER_STATES: dict[str, tuple[Attempt, tuple[int, str], str]] = {
    "main": (lambda s: s.elsewhere("main"), FORBIDDEN, "writes to wap/today, not to 'main'"),
    "main, encoded": (lambda s: s.elsewhere("%6dain"), FORBIDDEN, "not to 'main'"),
    "main, with a NUL": (lambda s: s.elsewhere("main%00"), FORBIDDEN, "writes to wap/today"),
    "somebody else's branch": (lambda s: s.elsewhere("wap%2Fother"), FORBIDDEN, "not to 'wap/other'"),
    "encoded twice": (lambda s: s.elsewhere("wap%252Fother"), FORBIDDEN, "not to 'wap%2Fother'"),
    "its own branch, encoded twice": (lambda s: s.elsewhere("wap%252Ftoday"), FORBIDDEN, "not to 'wap%2Ftoday'"),
    "by dots": (lambda s: s.elsewhere("wap%2Ftoday%2F..%2Fother"), FORBIDDEN, "writes to wap/today"),
    "in capitals": (lambda s: s.elsewhere("WAP%2FTODAY"), FORBIDDEN, "writes to wap/today"),
    "with two slashes": (lambda s: s.elsewhere("wap%2F%2Ftoday"), FORBIDDEN, "writes to wap/today"),
    "with a backslash": (lambda s: s.elsewhere("wap%5Ctoday"), FORBIDDEN, "writes to wap/today"),
    "at a commit": (lambda s: s.elsewhere(f"wap%2Ftoday@{'0' * 64}"), FORBIDDEN, "writes to wap/today"),
    "a commit": (lambda s: s.elsewhere(f"commit:{'a' * 64}"), FORBIDDEN, "writes to wap/today"),
    "a tag": (lambda s: s.elsewhere("tag:first"), FORBIDDEN, "writes to wap/today"),
    "the default branch": (lambda s: s.elsewhere("-"), FORBIDDEN, "writes to wap/today"),
    "a slash in the path": (lambda s: s.elsewhere("wap/other"), UNSUPPORTED, "doesn't offer this"),
    "reading somebody else's branch": (
        lambda s: s.writer.send("GET", "/v1/wap%2Fother/namespaces"), (404, "NoSuchWarehouseException"), "'wap/other'"),
    "connecting to it": (
        lambda s: s.writer.send("GET", "/v1/config?warehouse=wap/other"),
        (404, "NoSuchWarehouseException"), "'wap/other'"),
}  # fmt: skip

_TRIPS = {"namespace": ["nyc"], "name": "trips"}
_PROPERTIES = {"action": "set-properties", "updates": {"owner": "evil"}}
CHANGES: dict[str, tuple[str, str, Any]] = {
    "create a namespace": ("POST", "namespaces", {"namespace": ["evil"]}),
    "drop a namespace": ("DELETE", "namespaces/nyc", None),
    "create a table": ("POST", "namespaces/nyc/tables", {"name": "evil", "schema": SCHEMA}),
    "stage a table": ("POST", "namespaces/nyc/tables", {"name": "evil", "schema": SCHEMA, "stage-create": True}),
    "change a table": ("POST", "namespaces/nyc/tables/trips", {"requirements": [], "updates": [_PROPERTIES]}),
    "change tables": ("POST", "transactions/commit", {
        "table-changes": [{"identifier": _TRIPS, "requirements": [], "updates": [_PROPERTIES]}]}),
    "drop a table": ("DELETE", "namespaces/nyc/tables/trips", None),
    "purge a table": ("DELETE", "namespaces/nyc/tables/trips?purgeRequested=true", None),
    "rename a table": ("POST", "tables/rename", {"source": _TRIPS, "destination": {**_TRIPS, "name": "evil"}}),
}  # fmt: skip
PREFIXES = (
    *("main", "%6dain", "main%00", "main%20", "%20main", "main%2F", "MAIN", "main@HEAD", "tag:first", "-"),
    *("wap%2Fother", "wap%2Fyesterday", "wap%252Ftoday", "wap%2Ftoday%2F..%2Fother", "WAP%2FTODAY", "wap%2F%2Ftoday"),
)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_no_request_changes_another_state(scene: Scene, prefix: str) -> None:
    for name, (method, path, body) in CHANGES.items():
        response = scene.writer.send(method, f"/v1/{prefix}/{path}", body)
        error = valid("IcebergErrorResponse", response.json())["error"]
        assert (response.status_code, error["type"]) == FORBIDDEN, (name, error)


PLACES: dict[str, tuple[Attempt, tuple[int, str], str]] = {
    "a location": (lambda s: s.create(location=f"{s.world.root}/nyc/mine"), BAD, "Leave out the location"),
    "another table's location": (lambda s: s.create(location=s.trips["location"]), BAD, "Leave out the location"),
    "inside another table": (
        lambda s: s.create(location=f"{s.trips['location']}/new-{'0' * 32}"), BAD, "Leave out the location"),
    "by dots": (lambda s: s.create(location=f"{s.world.root}/nyc/../new-{'0' * 32}"), BAD, "Leave out the location"),
    "another store": (lambda s: s.create(location="s3://other/x"), BAD, "Leave out the location"),
    "a data folder elsewhere": (
        lambda s: s.create(properties={"write.data.path": s.trips["location"]}), BAD, "write.data.path is"),
    "a metadata folder elsewhere": (
        lambda s: s.create(properties={"write.metadata.path": "file:///tmp"}), BAD, "write.metadata.path is"),
    "an object store's folder elsewhere": (
        lambda s: s.create(properties={"write.object-storage.path": "s3://x"}), BAD, "write.object-storage.path"),
    "a folder elsewhere, later": (
        lambda s: s.change({"action": "set-properties", "updates": {"write.folder-storage.path": "s3://x"}}),
        BAD, "write.folder-storage.path is the gate's"),
    "files to be deleted": (
        lambda s: s.change({"action": "set-properties", "updates": {"gc.enabled": "true"}}), BAD, "let writers delete"),
    "metadata files to be deleted": (
        lambda s: s.change(
            {"action": "set-properties", "updates": {"write.metadata.delete-after-commit.enabled": "true"}}),
        BAD, "let writers delete"),
    "another place for a table": (
        lambda s: s.change({"action": "set-location", "location": s.trips["location"]}), BAD, "can't be changed"),
    "a namespace's place": (
        lambda s: s.writer.send("POST", "namespaces", {"namespace": ["x"], "properties": {"location": "s3://x"}}),
        BAD, "Leave out the namespace's location"),
    "a staged table somewhere else": (
        lambda s: s.create_staged({**s.staged(), "location": s.trips["location"]}), BAD, "wasn't begun here"),
    "a staged table under another name": (
        lambda s: s.create_staged(s.staged(), "other"), BAD, "wasn't begun here"),
    "another table's UUID": (
        lambda s: s.create_staged({**s.staged(), "table-uuid": s.trips["table-uuid"]}), BAD, "wasn't begun here"),
    "a table that was never staged": (
        lambda s: s.create_staged({**s.trips, "location": f"{s.world.root}/nyc/new_1"}), BAD, "wasn't begun here"),
}  # fmt: skip

FILES: dict[str, tuple[Attempt, tuple[int, str], str]] = {
    "another table's manifest list": (
        lambda s: s.append(s.trips["snapshots"][0]["manifest-list"]), BAD, "isn't in the table's folder"),
    "the same by dots": (
        lambda s: s.append(f"{s.mine['location']}/../x/snap.avro"), BAD, "isn't in the table's folder"),
    "any file of the machine": (lambda s: s.append("file:///etc/passwd"), BAD, "isn't in the table's folder"),
    "an address of the network": (
        lambda s: s.append("http://169.254.169.254/latest/meta-data"), BAD, "isn't in the table's folder"),
    "a manifest list that isn't there": (
        lambda s: s.append(f"{s.mine['location']}/metadata/none.avro"), BAD, "can't be read"),
    "an own list of another table's manifests": (
        lambda s: s.append(s.copied(s.trips["snapshots"][0]["manifest-list"], "snap-evil.avro")),
        BAD, "Manifest file:"),
    "statistics elsewhere": (
        lambda s: s.change({"action": "set-statistics", "snapshot-id": 1, "statistics": {
            "snapshot-id": s.mine["current-snapshot-id"], "statistics-path": "file:///etc/x"}}),
        BAD, "Statistics file"),
    "partition statistics elsewhere": (
        lambda s: s.change({"action": "set-partition-statistics", "partition-statistics": {
            "snapshot-id": s.mine["current-snapshot-id"], "statistics-path": f"{s.trips['location']}/x"}}),
        BAD, "Statistics file"),
}  # fmt: skip


def _rename(source: str, target: str) -> Attempt:
    names = {"source": source, "destination": target}
    body = {key: {"namespace": ["nyc"], "name": name} for key, name in names.items()}
    return lambda s: s.writer.send("POST", "tables/rename", body)


STATEMENTS: dict[str, tuple[Attempt, tuple[int, str], str]] = {
    "another UUID": (
        lambda s: s.change({"action": "assign-uuid", "uuid": s.trips["table-uuid"]}), BAD, "UUID can't be changed"),
    "a tag in a table": (
        lambda s: s.change({"action": "set-snapshot-ref", "ref-name": "t", "type": "tag",
                            "snapshot-id": s.mine["current-snapshot-id"]}), BAD, "lakegate tag create"),
    "encryption": (lambda s: s.change({"action": "add-encryption-key"}), BAD, "Encrypted tables"),
    "an unknown update": (lambda s: s.change({"action": "drop-everything"}), BAD, "isn't one that can be made here"),
    "renaming a published table": (_rename("trips", "other"), UNSUPPORTED, "is a published table"),
    "renaming to a name that is taken": (_rename("mine", "trips"), EXISTS, "nyc.trips"),
    "renaming what isn't there": (_rename("none", "other"), MISSING, "nyc.none"),
    "creating what is there": (
        lambda s: s.create(name="mine"), EXISTS, "nyc.mine"),
    "creating what is there by a commit": (
        lambda s: s.writer.commit("mine", [], [{"type": "assert-create"}]), CONFLICT, "exists already"),
    "a namespace that is there": (
        lambda s: s.writer.send("POST", "namespaces", {"namespace": ["nyc"]}), EXISTS, "nyc"),
    "dropping a namespace with tables": (
        lambda s: s.writer.send("DELETE", "namespaces/nyc"), (409, "NamespaceNotEmptyException"), "nyc"),
    "dropping a namespace that isn't there": (
        lambda s: s.writer.send("DELETE", "namespaces/none"), (404, "NoSuchNamespaceException"), "none"),
    "a table where there is no namespace": (
        lambda s: s.writer.send("POST", "namespaces/none/tables", {"name": "t", "schema": SCHEMA}),
        (404, "NoSuchNamespaceException"), "none"),
    "dropping what isn't there": (
        lambda s: s.writer.send("DELETE", "namespaces/nyc/tables/none"), MISSING, "nyc.none"),
    "changing what isn't there": (lambda s: s.writer.commit("none", []), MISSING, "nyc.none"),
    "a view": (lambda s: s.writer.send("POST", "namespaces/nyc/views", {"name": "v"}), UNSUPPORTED, "Views aren't"),
    "registering a table": (
        lambda s: s.writer.send("POST", "namespaces/nyc/register", {"name": "r"}), UNSUPPORTED, "can't be registered"),
    "a quarantine table": (lambda s: s.create(name="mine__quarantine"), BAD, "only lakegate writes"),
    "a namespace that is a text": (
        lambda s: s.writer.send("POST", "namespaces", {"namespace": "evil"}), BAD, "a list of names"),
    "a namespace of 20 levels": (
        lambda s: s.writer.send("POST", "namespaces", {"namespace": ["a"] * 20}), BAD, "at most 19 levels"),
    "a name mapping that no reader could parse": (
        lambda s: s.change({"action": "set-properties", "updates": {"schema.name-mapping.default": "garbage"}}),
        BAD, "isn't a name mapping"),
    "a class that says where files go": (
        lambda s: s.change({"action": "set-properties", "updates": {"write.location-provider.impl": "evil.Class"}}),
        BAD, "the gate's to choose"),
    "a reserved namespace": (
        lambda s: s.writer.send("POST", "namespaces", {"namespace": ["system"]}), BAD, "isn't a namespace of the lake"),
}  # fmt: skip

BODIES: dict[str, tuple[Attempt, tuple[int, str], str]] = {
    "no JSON": (lambda s: _raw(s, b"{"), BAD, "isn't JSON"),
    "no object": (lambda s: _raw(s, b"[]"), BAD, "isn't a JSON object"),
    "not UTF-8": (lambda s: _raw(s, b'{"a": "\xff"}'), BAD, "isn't JSON"),
    "nested 900 levels deep": (lambda s: _raw(s, b'{"schema":' * 900 + b"1" + b"}" * 900), BAD, "isn't JSON"),
    "17 MB": (lambda s: _raw(s, b" " * 17 * 2**20), BAD, "larger than 16 MB"),
    "nothing": (lambda s: s.writer.send("POST", "namespaces/nyc/tables", {}), BAD, "lacks 'name'"),
    "no schema": (lambda s: s.writer.send("POST", "namespaces/nyc/tables", {"name": "x"}), BAD, "lacks 'schema'"),
    "updates that are none": (
        lambda s: s.writer.send("POST", "namespaces/nyc/tables/mine", {"updates": "x"}), BAD, "lists of JSON objects"),
    "an unknown type": (lambda s: s.create(schema=_of("text")), BAD, "schemas.0.fields.0.type"),
    "a format version to come": (lambda s: s.create(properties={"format-version": "9"}), BAD, "isn't known here"),
    "a newer type": (lambda s: s.create(schema=_of("variant")), BAD, "needs format version 3"),
    "a transaction of nothing": (
        lambda s: s.writer.send("POST", "transactions/commit", {"table-changes": []}), BAD, "changes no table"),
    "a table twice": (
        lambda s: s.writer.send("POST", "transactions/commit", {
            "table-changes": 2 * [{"identifier": {"namespace": ["nyc"], "name": "mine"}}]}), BAD, "a table twice"),
    "a name that is none": (lambda s: s.create(name=7), BAD, "isn't what Iceberg's REST API describes"),
    **{
        f"the name {name!r}": (lambda s, name=name: s.create(name=name), BAD, "name")  # type: ignore[misc]
        for name in ("..", "a/../b", "a%2Fb", "A B", "x" * 300, "a\x1fb", ".", "")
    },
}  # fmt: skip


def _raw(scene: Scene, content: bytes) -> Any:
    path = f"{scene.writer.prefix}/namespaces/nyc/tables"
    return scene.writer.client.post(path, content=content, headers=dict(scene.writer.headers))


def _of(kind: Any) -> Any:
    return {"type": "struct", "fields": [{"id": 1, "name": "a", "required": False, "type": kind}]}


@pytest.mark.parametrize(
    ("attempt", "answer", "message"),
    [
        pytest.param(*one, id=f"{group}: {name}")
        for group, attempts in (
            ("writing elsewhere", OTHER_STATES),
            ("choosing a place", PLACES),
            ("listing files", FILES),
            ("asking for", STATEMENTS),
            ("sending", BODIES),
        )
        for name, one in attempts.items()
    ],
)
def test_an_attempt_is_refused(scene: Scene, attempt: Attempt, answer: tuple[int, str], message: str) -> None:
    response = attempt(scene)
    error = valid("IcebergErrorResponse", response.json())["error"]
    assert (response.status_code, error["type"]) == answer, error
    assert message in error["message"]


def test_only_a_token_of_an_open_opening_is_one(scene: Scene) -> None:
    opening, openings = scene.writer.opening, scene.world.openings.known
    good = token_of(opening, KEY)
    body, _, signature = good.removeprefix("lakegate1.").partition(".")
    over = opening.model_copy(update={"deadline": datetime.now(UTC) - timedelta(seconds=1)})
    unknown = opening.model_copy(update={"opening_id": "none"})
    moved = opening.model_copy(update={"branch": "wap/other"})
    attempts = {
        "another key's": (token_of(opening, b"x" * 32), 401),
        "cut off": (good[:-2], 401),
        "another opening": (f"lakegate1.{token_of(unknown, KEY).split('.')[1]}.{signature}", 401),
        "no signature": (f"lakegate1.{body}", 401),
        "no token": ("lakegate1.", 401),
        "unknown": (token_of(unknown, KEY), 403),
        "another branch's": (token_of(moved, KEY), 403),
    }
    for name, (token, status) in attempts.items():
        response = scene.with_token(token)
        assert response.status_code == status, (name, response.text)
        assert valid("IcebergErrorResponse", response.json())
    assert claim_in("lakegate1.\u00e9.\u00e9", KEY) is None
    for ended in ({"is_sealed": True}, {"deadline": over.deadline}, {"branch": "wap/other"}):
        openings[opening.opening_id] = opening.model_copy(update=ended)
        response = scene.with_token(good)
        assert (response.status_code, "can't write to wap/today any more" in response.text) == (403, True)
    openings[opening.opening_id] = opening


def test_yesterdays_token_doesnt_write_to_todays_branch_of_that_name(scene: Scene) -> None:
    opening = scene.writer.opening
    yesterday = opening.model_copy(update={"opening_id": "wap-today-1"})
    scene.world.openings.known["wap-today-1"] = yesterday.model_copy(update={"is_sealed": True})
    refused = scene.with_token(token_of(yesterday, KEY))
    assert (refused.status_code, "was sealed" in refused.text) == (403, True)


def test_a_staged_table_is_only_its_own_openings(scene: Scene) -> None:
    staged = scene.staged()
    other = scene.world.writer(scene.world.openings.known["wap-other"])
    refused = replace(scene, writer=other).create_staged(staged)
    assert (refused.status_code, "wasn't begun here" in refused.text) == (400, True)


def test_a_manifest_that_lists_another_tables_file_is_refused_whatever_it_says_of_it(scene: Scene) -> None:
    """Added, there before, or deleted: Iceberg deletes what expired snapshots list as deleted."""
    [line] = read_list(local_path(scene.trips["snapshots"][0]["manifest-list"]).read_bytes()).manifests
    container = read_container(local_path(line.file.manifest_path).read_bytes())
    [entry] = read_entries(container, line.file)
    for listed in (entry, entry.existing(), entry.deleted(42)):
        path = f"{scene.mine['location']}/metadata/evil-{listed.status}"
        content = write_entries(container.meta, [listed])
        local_path(f"{path}-m0.avro").write_bytes(content)
        made = new_listed_manifest(f"{path}-m0.avro", len(content), [listed], 0, 42, 2, None)
        local_path(f"{path}.avro").write_bytes(write_list(ManifestList(no_manifests().meta, (made,)), 42, None, 2))
        refused = scene.append(f"{path}.avro")
        assert (refused.status_code, "Data file" in refused.text) == (400, True), (listed.status, refused.text)


def test_a_link_in_a_tables_folder_leads_nowhere_else(scene: Scene) -> None:
    target = local_path(scene.trips["snapshots"][0]["manifest-list"])
    link = local_path(f"{scene.mine['location']}/metadata/link")
    link.symlink_to(target.parent, target_is_directory=True)
    refused = scene.append(f"{scene.mine['location']}/metadata/link/{target.name}")
    assert (refused.status_code, "isn't in the table's folder" in refused.text) == (400, True)
