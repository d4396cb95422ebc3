"""Glue's tables are updated from known states, and left alone if somebody else changed them."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from lakegate.config import GlueDownstream
from lakegate.downstream.glue import ACTIONS, COMMIT, METADATA, TABLE, GlueTarget, policy
from lakegate.errors import DownstreamError, DownstreamUnavailableError
from support.downstream_contract import DownstreamContract, changed, dropped, event


class FakeGlue:
    """Answers as Glue does, with version ids. ``beats`` is called before each write, to change the table first."""

    meta = SimpleNamespace(region_name="eu-central-1")

    def __init__(self) -> None:
        self.databases: set[str] = set()
        self.tables: dict[tuple[str, str], dict[str, Any]] = {}
        self.calls: list[str] = []
        self.beats: list[Any] = []
        self.fails: str | None = None

    def __getattr__(self, method: str) -> Any:
        def call(**given: Any) -> Any:
            self.calls.append(method)
            if self.fails is not None:
                raise refusal(self.fails)
            if self.beats and method in ("create_table", "update_table"):
                self.beats.pop(0)()
            return getattr(self, f"_{method}")(**given)

        if method.startswith("_"):
            raise AttributeError(method)
        return call

    def _get_database(self, Name: str, **_: Any) -> Any:
        if Name not in self.databases:
            raise refusal("EntityNotFoundException")
        return {"Database": {"Name": Name}}

    def _create_database(self, DatabaseInput: Mapping[str, Any], **_: Any) -> Any:
        self.databases.add(DatabaseInput["Name"])
        return {}

    def _get_table(self, DatabaseName: str, Name: str, **_: Any) -> Any:
        if (DatabaseName, Name) not in self.tables:
            raise refusal("EntityNotFoundException")
        return {"Table": self.tables[DatabaseName, Name]}

    def _create_table(self, DatabaseName: str, TableInput: Mapping[str, Any], **_: Any) -> Any:
        key = DatabaseName, TableInput["Name"]
        if key in self.tables:
            raise refusal("AlreadyExistsException")
        self.tables[key] = {**TableInput, "DatabaseName": DatabaseName, "VersionId": "1", "CreateTime": 1}
        return {}

    def _update_table(
        self,
        DatabaseName: str,
        TableInput: Mapping[str, Any],
        VersionId: str,
        SkipArchive: bool,
        **_: Any,
    ) -> Any:
        assert SkipArchive
        found = self.tables[DatabaseName, TableInput["Name"]]
        if found["VersionId"] != VersionId:
            raise refusal("ConcurrentModificationException")
        assert "CreateTime" not in TableInput
        self.tables[DatabaseName, TableInput["Name"]] = {
            **TableInput, "DatabaseName": DatabaseName, "VersionId": str(int(VersionId) + 1), "CreateTime": 1,
        }  # fmt: skip
        return {}

    def _delete_table(self, DatabaseName: str, Name: str, **_: Any) -> Any:
        del self.tables[DatabaseName, Name]
        return {}

    def by_somebody_else(self, location: str = "s3://lake/elsewhere.metadata.json", **more: str) -> None:
        """Change the table as Athena does."""
        table = self.tables["nyc", "trips"]
        table["Parameters"] = {**table["Parameters"], "metadata_location": location, **more}
        table["VersionId"] = str(int(table["VersionId"]) + 1)


def refusal(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "Because hunter."}}, "Any")


def target(glue: FakeGlue, **settings: Any) -> GlueTarget:
    return GlueTarget(glue, GlueDownstream(type="glue", **settings))


class TestGlue(DownstreamContract):
    @pytest.fixture
    def target(self) -> GlueTarget:
        return target(FakeGlue())

    @pytest.fixture
    def away(self) -> GlueTarget:
        glue = FakeGlue()
        glue.fails = "ThrottlingException"
        return target(glue)

    @pytest.fixture
    def refusing(self) -> GlueTarget:
        glue = FakeGlue()
        glue.fails = "AccessDeniedException"
        return target(glue)


def test_a_table_is_registered_as_icebergs_own_catalogs_do() -> None:
    glue = FakeGlue()
    target(glue).deliver(event(changed(number=0)), None)
    assert glue.databases == {"nyc"}
    table = glue.tables["nyc", "trips"]
    where = changed(number=0).after
    assert table["TableType"] == "EXTERNAL_TABLE"
    assert table["Parameters"] == {
        "table_type": "ICEBERG", "metadata_location": where, TABLE: "nyc.trips", METADATA: where,
        COMMIT: event(changed()).commit,
    }  # fmt: skip
    assert table["StorageDescriptor"] == {
        "Columns": [{"Name": "id", "Type": "bigint"}, {"Name": "pickup 🚕", "Type": "timestamp"}],
        "Location": "s3://lake/nyc/trips_1",
    }


def test_what_others_added_to_it_stays() -> None:
    glue = FakeGlue()
    target(glue).deliver(event(changed(number=0)), None)
    glue.tables["nyc", "trips"] |= {"Description": "Trips", "Owner": "nyc-team"}
    glue.tables["nyc", "trips"]["Parameters"]["classification"] = "public"
    target(glue).deliver(event(changed(number=1)), None)
    table = glue.tables["nyc", "trips"]
    assert (table["Description"], table["Owner"], table["VersionId"]) == ("Trips", "nyc-team", "2")
    assert table["Parameters"]["classification"] == "public"
    assert table["Parameters"]["previous_metadata_location"] == changed(number=0).after
    assert table["Parameters"]["metadata_location"] == changed(number=1).after


def test_an_event_that_comes_twice_changes_nothing() -> None:
    glue = FakeGlue()
    for _ in range(2):
        target(glue).deliver(event(changed(number=0)), None)
    assert glue.calls.count("create_table") == 1
    assert "update_table" not in glue.calls


def test_events_that_were_left_out_do_not_matter() -> None:
    glue = FakeGlue()
    target(glue).deliver(event(changed(number=0)), None)
    target(glue).deliver(event(changed(number=7)), None)
    target(glue).deliver(event(changed(number=3, before=None), kind="current"), None)
    assert glue.tables["nyc", "trips"]["Parameters"]["metadata_location"] == changed(number=3).after


def test_one_who_is_faster_is_looked_at_again() -> None:
    glue = FakeGlue()
    ours = target(glue)
    glue.beats = [lambda: target(glue).deliver(event(changed(number=0)), None)]
    ours.deliver(event(changed(number=1)), None)
    assert glue.tables["nyc", "trips"]["Parameters"]["metadata_location"] == changed(number=1).after
    glue.beats = [lambda: glue.by_somebody_else(comment="x", metadata_location=str(changed(number=1).after))] * 9
    with pytest.raises(DownstreamUnavailableError, match="keep changing"):
        ours.deliver(event(changed(number=2)), None)


def test_a_table_that_somebody_else_wrote_is_not_moved_over_it() -> None:
    glue = FakeGlue()
    target(glue).deliver(event(changed(number=0)), None)
    glue.by_somebody_else()
    before = dict(glue.tables["nyc", "trips"])
    for one in (changed(number=1), dropped(number=1)):
        with pytest.raises(DownstreamError, match=r"Somebody else changed table nyc\.trips in Glue.*elsewhere"):
            target(glue).deliver(event(one), None)
    assert glue.tables["nyc", "trips"] == before
    target(glue, on_conflict="overwrite").deliver(event(changed(number=1)), None)
    assert glue.tables["nyc", "trips"]["Parameters"][METADATA] == changed(number=1).after


def test_somebody_who_writes_between_look_and_move_is_noticed() -> None:
    glue = FakeGlue()
    target(glue).deliver(event(changed(number=0)), None)
    glue.beats = [glue.by_somebody_else]
    with pytest.raises(DownstreamError, match="Somebody else"):
        target(glue).deliver(event(changed(number=1)), None)


def test_a_table_of_another_kind_or_of_another_name_is_left_alone() -> None:
    glue = FakeGlue()
    glue.databases.add("nyc")
    glue.tables["nyc", "trips"] = {"Name": "trips", "VersionId": "1", "Parameters": {"classification": "csv"}}
    with pytest.raises(DownstreamError, match="isn't an Iceberg table"):
        target(glue).deliver(event(changed(number=0)), None)
    del glue.tables["nyc", "trips"]
    target(glue).deliver(event(changed(number=0)), None)
    with pytest.raises(DownstreamError, match=r"belongs to nyc\.trips. NYC\.Trips wasn't updated there"):
        target(glue).deliver(event(changed("NYC.Trips", number=0)), None)


def test_a_table_that_was_registered_by_hand_is_taken_over() -> None:
    glue = FakeGlue()
    where = str(changed(number=0).after)
    parameters = {"table_type": "ICEBERG", "metadata_location": where}
    glue.tables["nyc", "trips"] = {"Name": "trips", "VersionId": "1", "Parameters": parameters}
    target(glue).deliver(event(changed(number=1)), None)
    assert glue.tables["nyc", "trips"]["Parameters"][TABLE] == "nyc.trips"


def test_a_dropped_table_goes_or_stays() -> None:
    glue = FakeGlue()
    target(glue).deliver(event(changed(number=0)), None)
    target(glue, on_drop="keep").deliver(event(dropped(number=1)), None)
    assert ("nyc", "trips") in glue.tables
    target(glue).deliver(event(dropped(number=1)), None)
    assert glue.tables == {}


def test_names_are_those_that_glue_knows() -> None:
    assert target(FakeGlue()).names("A.b.Trips") == ("a_b", "trips")
    assert target(FakeGlue(), database="lake").names("A.b.Trips") == ("lake", "trips")


def test_tables_elsewhere_than_on_s3_are_refused() -> None:
    with pytest.raises(DownstreamError, match="isn't on S3"):
        target(FakeGlue()).deliver(event(changed(after="file:///lake/00000-x.metadata.json")), None)


def test_missing_rights_are_named() -> None:
    glue = FakeGlue()
    glue.fails = "AccessDeniedException"
    with pytest.raises(DownstreamError, match="glue:GetTable with AccessDeniedException") as caught:
        target(glue).deliver(event(), None)
    assert caught.value.hint == "To see the permissions that the role needs, run: lakegate admin downstream policy NAME"


def test_the_policy_names_what_is_called_and_where() -> None:
    settings = GlueDownstream(type="glue", database="lake", catalog_id="123456789012", region="eu-central-1")
    (statement,) = policy(settings)["Statement"]
    assert statement["Resource"] == [
        f"arn:aws:glue:eu-central-1:123456789012:{one}" for one in ("catalog", "database/lake", "table/lake/*")
    ]
    glue = FakeGlue()
    for one in (event(changed(number=0)), event(changed(number=1)), event(dropped(number=2))):
        target(glue).deliver(one, None)
    called = {f"glue:{''.join(word.title() for word in name.split('_'))}" for name in glue.calls}
    assert called == set(ACTIONS) == set(statement["Action"])
