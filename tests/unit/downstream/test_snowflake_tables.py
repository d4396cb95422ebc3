"""Tables in Snowflake follow the lake's: which are created, refreshed, replaced, dropped and left alone."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField

from lakegate.config import Settings
from lakegate.downstream import DownstreamContext, open_downstream
from lakegate.downstream.snowflake import SnowflakeTarget
from lakegate.downstream.snowflake.setup import SnowflakeSetup
from lakegate.errors import ConfigurationError, DownstreamError, DownstreamUnavailableError, NotFoundError
from lakegate.model.downstream import ChangedTable, DownstreamEvent
from lakegate.model.identifiers import TableIdentifier
from support.memory_store import MemoryStore
from support.snowflake_server import Object, SnowflakeAccount
from support.snowflake_support import ROLE_ARN, WAREHOUSE, account_settings, lake_table, open_setup, path_of

TRIPS, ZONES = lake_table("nyc.trips"), lake_table("nyc.zones", uuid="77aa")


@pytest.fixture
def setup(account: SnowflakeAccount) -> SnowflakeSetup:
    """An account that has everything but the tables."""
    account.furnish()
    return open_setup(account.url, readers=["ANALYST"])


def make_target(setup: SnowflakeSetup, **changes: Any) -> SnowflakeTarget:
    def uuid_of(table: TableIdentifier, location: str) -> str:
        assert str(table) in location
        return location.split("_")[1].partition("/")[0]

    return SnowflakeTarget("snowflake", setup.section.model_copy(update=changes), setup.location, uuid_of)


def event(*tables: ChangedTable) -> DownstreamEvent:
    return DownstreamEvent(event_id="e1", kind="published", at=datetime(2026, 1, 31, tzinfo=UTC), tables=tables)


def changed(table: Any) -> ChangedTable:
    return ChangedTable(table=str(table.table), after=table.metadata_location)


def dropped(table: Any) -> ChangedTable:
    return ChangedTable(table=str(table.table), before=table.metadata_location, dropped=True)


# what a publish does --------------------------------------------------------------------------------------------------


def test_a_new_table_is_created_with_its_schema_and_its_readers(
    account: SnowflakeAccount, setup: SnowflakeSetup
) -> None:
    make_target(setup).deliver(event(changed(TRIPS)), None)
    assert account.table("nyc", "trips").path == path_of(TRIPS)
    assert account.table("nyc", "trips").comment == "lakegate nyc.trips (table 6c1f)"
    assert ("USAGE", "SCHEMA", 'LAKE."nyc"', "ANALYST") in account.grants
    assert ("SELECT", "ICEBERG_TABLE", 'LAKE."nyc"."trips"', "ANALYST") in account.grants


def test_a_publish_refreshes_and_a_second_delivery_changes_nothing(
    account: SnowflakeAccount, setup: SnowflakeSetup
) -> None:
    target = make_target(setup)
    target.deliver(event(changed(TRIPS)), None)
    account.statements.clear()
    later = lake_table("nyc.trips", version=2)
    for _ in range(2):
        target.deliver(event(changed(later)), None)
        assert account.table("nyc", "trips").path == path_of(later)
    assert set(account.made()) == {f'ALTER ICEBERG TABLE "LAKE"."nyc"."trips" REFRESH \'{path_of(later)}\''}
    # A revert goes back to a metadata file before: the same statement.
    target.deliver(event(changed(TRIPS)), None)
    assert account.table("nyc", "trips").path == path_of(TRIPS)


def test_several_deliveries_share_a_session_that_ends_with_them(
    account: SnowflakeAccount, setup: SnowflakeSetup
) -> None:
    target = make_target(setup)
    for version in range(3):
        target.deliver(event(changed(lake_table("nyc.trips", version))), None)
    assert len(account.logins) == 1
    assert len(account.sessions) == 1
    del target
    assert not account.sessions


def test_two_that_create_a_table_at_once_both_end_well(account: SnowflakeAccount, setup: SnowflakeSetup) -> None:
    target = make_target(setup)
    target.deliver(event(changed(TRIPS)), None)
    # It looks as if there was no table yet; creating it shows that there is.
    account.blind = 1
    later = lake_table("nyc.trips", version=2)
    target.deliver(event(changed(later)), None)
    assert account.table("nyc", "trips").path == path_of(later)


def test_a_table_of_the_same_name_that_is_another_replaces_it(account: SnowflakeAccount, setup: SnowflakeSetup) -> None:
    target = make_target(setup)
    target.deliver(event(changed(TRIPS)), None)
    account.grants.clear()
    another = lake_table("nyc.trips", uuid="beef")
    target.deliver(event(changed(another)), None)
    assert account.table("nyc", "trips").path == path_of(another)
    assert "(table beef)" in account.table("nyc", "trips").comment
    # Replacing takes the grants away.
    assert ("SELECT", "ICEBERG_TABLE", 'LAKE."nyc"."trips"', "ANALYST") in account.grants


@pytest.mark.parametrize(
    ("at", "replaces"),
    [
        ("GRANT USAGE ON SCHEMA", False),
        ("CREATE ICEBERG TABLE", False),
        ("GRANT SELECT", False),
        ("GRANT SELECT", True),
    ],
)
def test_a_delivery_that_ends_before_its_grants_makes_them_when_it_is_retried(
    account: SnowflakeAccount, setup: SnowflakeSetup, at: str, replaces: bool
) -> None:
    target, wanted = make_target(setup), TRIPS
    if replaces:
        target.deliver(event(changed(TRIPS)), None)
        account.grants = {grant for grant in account.grants if grant[0] != "SELECT"}
        wanted = lake_table("nyc.trips", uuid="beef")
    account.fail(at, code="000604", message="Statement was cancelled.")
    with pytest.raises(DownstreamUnavailableError):
        target.deliver(event(changed(wanted)), None)
    target.deliver(event(changed(wanted)), None)
    assert ("USAGE", "SCHEMA", 'LAKE."nyc"', "ANALYST") in account.grants
    assert ("SELECT", "ICEBERG_TABLE", 'LAKE."nyc"."trips"', "ANALYST") in account.grants


def test_a_schema_of_others_and_a_reader_that_is_gone_hold_up_no_table(
    account: SnowflakeAccount, setup: SnowflakeSetup
) -> None:
    account.fail("GRANT USAGE ON SCHEMA", code="003001", message="Insufficient privileges.")
    target = make_target(setup)
    target.deliver(event(changed(TRIPS)), None)
    assert ("SELECT", "ICEBERG_TABLE", 'LAKE."nyc"."trips"', "ANALYST") in account.grants
    account.roles.remove("ANALYST")
    later = lake_table("nyc.trips", version=2)
    target.deliver(event(changed(later)), None)
    assert account.table("nyc", "trips").path == path_of(later)


def test_a_dropped_table_is_dropped_if_it_is_ours(account: SnowflakeAccount, setup: SnowflakeSetup) -> None:
    target = make_target(setup)
    target.deliver(event(changed(TRIPS), changed(ZONES)), None)
    account.table("nyc", "zones").comment = "by hand"
    for _ in range(2):
        target.deliver(event(dropped(TRIPS), dropped(ZONES), dropped(lake_table("other.gone"))), None)
    assert set(account.databases["LAKE"]["nyc"]) == {"zones"}


@pytest.mark.parametrize(
    "there",
    [
        Object("ICEBERG TABLE", "made by hand", "x", "LAKEGATE"),
        Object("ICEBERG TABLE", "lakegate other.trips (table 6c1f)", "x", "LAKEGATE"),
        Object("ICEBERG TABLE", "lakegate nyc.trips (table 6c1f)", "x", "ANOTHER_LAKE"),
        Object("TABLE"),
        Object("VIEW"),
    ],
)
def test_what_others_made_is_never_touched(account: SnowflakeAccount, setup: SnowflakeSetup, there: Object) -> None:
    account.databases["LAKE"]["nyc"] = {"trips": there}
    with pytest.raises(DownstreamError, match=r'"LAKE"."nyc"."trips" exists in Snowflake') as caught:
        make_target(setup).deliver(event(changed(TRIPS), changed(ZONES)), None)
    assert "another schema in [downstream.snowflake.schemas]" in str(caught.value.hint)
    assert account.databases["LAKE"]["nyc"]["trips"] is there
    # The other tables of the publish don't wait for it.
    assert account.table("nyc", "zones").path == path_of(ZONES)


def test_a_table_whose_files_snowflake_cannot_read(account: SnowflakeAccount, setup: SnowflakeSetup) -> None:
    account.readable = False
    with pytest.raises(
        DownstreamError, match="can't read the lake's files through external volume 'LAKEGATE'"
    ) as caught:
        make_target(setup).deliver(event(changed(TRIPS)), None)
    assert "lakegate snowflake status" in str(caught.value.hint)
    account.readable = True
    account.missing.add(path_of(TRIPS))
    with pytest.raises(DownstreamError, match="was not found"):
        make_target(setup).deliver(event(changed(TRIPS)), None)


def test_a_rejected_run_changes_nothing(account: SnowflakeAccount, setup: SnowflakeSetup) -> None:
    make_target(setup).deliver(event(ChangedTable(table="nyc.trips")), None)
    assert account.made() == []


def test_an_account_that_is_away_holds_up_no_table_twice(account: SnowflakeAccount, setup: SnowflakeSetup) -> None:
    account.fail("query-request|SHOW", status=503, times=99)
    with pytest.raises(DownstreamUnavailableError):
        make_target(setup, timeout_s=1).deliver(event(changed(TRIPS), changed(ZONES)), None)
    assert not any("zones" in statement for _, statement in account.requests)


def test_the_warehouse_that_is_missing_shows_when_a_table_is_created(
    account: SnowflakeAccount, setup: SnowflakeSetup
) -> None:
    with pytest.raises(DownstreamError, match="Warehouse 'NOPE' doesn't exist") as caught:
        make_target(setup, warehouse="NOPE").deliver(event(changed(TRIPS)), None)
    assert "GRANT USAGE ON WAREHOUSE NOPE" in str(caught.value.hint)


def test_a_test_looks_for_everything_and_changes_nothing(account: SnowflakeAccount, setup: SnowflakeSetup) -> None:
    assert "Signed in to ACME as LAKEGATE" in make_target(setup).test()
    with pytest.raises(DownstreamError, match="Warehouse 'NOPE'"):
        make_target(setup, warehouse="NOPE").test()
    with pytest.raises(DownstreamError, match="no external volume 'OTHER'"):
        make_target(setup, external_volume="OTHER").test()
    with pytest.raises(DownstreamError, match="'OTHER' does not exist"):
        make_target(setup, database="OTHER").test()
    assert account.made() == []


# plan and apply -------------------------------------------------------------------------------------------------------


def test_apply_makes_everything_once(account: SnowflakeAccount) -> None:
    setup = open_setup(account.url, readers=["ANALYST"])
    with setup.session() as session:
        steps = setup.plan([TRIPS, ZONES], session)
        assert {step.action for step in steps} == {"create"}
        assert all(error is None for _, error in setup.apply(steps, session))
        assert {step.action for step in setup.plan([TRIPS, ZONES], session)} == {"none"}
        made = account.made()
        assert list(setup.apply(setup.plan([TRIPS, ZONES], session), session)) == []
    assert account.made() == made
    assert account.volumes["LAKEGATE"]["STORAGE_AWS_ROLE_ARN"] == ROLE_ARN


def test_apply_stops_until_the_volume_may_be_read(account: SnowflakeAccount) -> None:
    account.readable = False
    setup = open_setup(account.url)
    with setup.session() as session:
        [(step, error)] = setup.apply(setup.plan([TRIPS], session), session)
        assert (step.kind, error) == ("external volume", None)
        assert "storageLocationSelectionResult: FAILED" in str(setup.volume_problem(session))
        trust = setup.rights(session).documents["trust"]["Statement"][0]
        assert trust["Principal"]["AWS"].startswith("arn:aws:iam::940482405254:user/")
        account.readable = True
        assert all(error is None for _, error in setup.apply(setup.plan([TRIPS], session), session))
    assert account.table("nyc", "trips").path == path_of(TRIPS)


def test_apply_stops_where_a_privilege_lacks(account: SnowflakeAccount) -> None:
    account.denied.add("CREATE INTEGRATION")
    setup = open_setup(account.url)
    with setup.session() as session:
        done = list(setup.apply(setup.plan([TRIPS], session), session))
    assert [step.kind for step, _ in done] == ["external volume", "catalog integration"]
    assert "may not do this" in str(done[1][1])


def test_a_table_that_fails_keeps_no_other_back(account: SnowflakeAccount, setup: SnowflakeSetup) -> None:
    account.missing.add(path_of(TRIPS))
    with setup.session() as session:
        done = {step.name: error for step, error in setup.apply(setup.plan([TRIPS, ZONES], session), session)}
        assert "was not found" in str(done['"LAKE"."nyc"."trips"'])
        assert account.table("nyc", "zones").path == path_of(ZONES)
        # But all of them would fail through a volume that can't be read.
        account.readable = False
        more = [lake_table("nyc.a"), lake_table("nyc.b")]
        failed = [step.name for step, error in setup.apply(setup.plan(more, session), session) if error]
    assert failed == ['"LAKE"."nyc"."a"']


def test_what_snowflake_says_of_a_volume_is_shown_whatever_it_is(
    account: SnowflakeAccount, setup: SnowflakeSetup
) -> None:
    with setup.session() as session:
        assert setup.volume_problem(session) is None
        account.fail("VERIFY", code="003001", message="Insufficient privileges to operate on the volume.")
        assert "Insufficient privileges" in str(setup.volume_problem(session))
        account.said_of_volume = "no JSON"
        assert setup.volume_problem(session) == "no JSON"
        account.said_of_volume = '{"success": false, "region": "eu"}'
        assert setup.volume_problem(session) == account.said_of_volume
        passed = '{"success": false, "storageLocationSelectionResult": "PASSED", "writeResult": "FAILED"'
        account.said_of_volume = passed + "}"
        assert setup.volume_problem(session) is None
        account.said_of_volume = passed + ', "readResult": "FAILED: 403"}'
        assert setup.volume_problem(session) == "readResult: FAILED: 403"


def test_a_plan_shows_what_is_in_the_way_and_what_is_gone(account: SnowflakeAccount, setup: SnowflakeSetup) -> None:
    make_target(setup).deliver(event(changed(TRIPS), changed(ZONES)), None)
    account.databases["LAKE"]["nyc"] |= {"view": Object("VIEW"), "hand": Object("ICEBERG TABLE", "by hand")}
    tables = [lake_table("nyc.trips", uuid="beef"), lake_table("nyc.view"), lake_table("nyc.hand")]
    with setup.session() as session:
        steps = {step.name.rpartition(".")[2]: step for step in setup.plan(tables, session) if step.kind == "table"}
    assert {name: step.action for name, step in steps.items()} == {
        '"trips"': "replace",
        '"view"': "refuse",
        '"hand"': "refuse",
        '"zones"': "drop",
    }
    assert "a view of this name exists" in str(steps['"view"'].reason)
    assert "lakegate didn't create it" in str(steps['"hand"'].reason)


def test_a_plan_never_uses_a_volume_or_integration_that_is_for_something_else(account: SnowflakeAccount) -> None:
    setup = open_setup(account.url)
    account.volumes["LAKEGATE"] = {"NAME": "x", "STORAGE_BASE_URL": "s3://elsewhere/"}
    with setup.session() as session:
        with pytest.raises(
            ConfigurationError, match="is for s3://elsewhere/, but the lake's files are in s3://lake/wh/"
        ):
            setup.plan([TRIPS], session)
        account.volumes["LAKEGATE"]["STORAGE_BASE_URL"] = "s3compat://lake/wh"
        account.integrations["LAKEGATE"] = {"CATALOG_SOURCE": "GLUE"}
        with pytest.raises(ConfigurationError, match="has CATALOG_SOURCE = GLUE"):
            setup.plan([TRIPS], session)


def test_a_reader_that_does_not_exist(account: SnowflakeAccount) -> None:
    setup = open_setup(account.url, readers=["NOBODY"])
    with setup.session() as session:
        *_, (step, error) = setup.apply(setup.plan([TRIPS], session), session)
    assert step.kind == "grant"
    assert error is not None
    assert "Role 'NOBODY' does not exist" in error.message
    assert "remove it from downstream.snowflake.readers" in str(error.hint)


# status ---------------------------------------------------------------------------------------------------------------


def test_status_says_which_tables_are_behind(account: SnowflakeAccount, setup: SnowflakeSetup) -> None:
    make_target(setup).deliver(event(changed(TRIPS), changed(ZONES)), None)
    account.databases["LAKE"]["nyc"]["hand"] = Object("ICEBERG TABLE", "by hand", "x", "LAKEGATE")
    tables = [
        TRIPS,
        lake_table("nyc.zones", version=2, uuid="77aa"),
        lake_table("nyc.new"),
        lake_table("nyc.hand"),
        lake_table("nyc.view"),
    ]
    account.databases["LAKE"]["nyc"]["view"] = Object("VIEW")
    with setup.session() as session:
        status = setup.status(tables, session)
        assert [table.state for table in status.tables] == ["current", "behind", "missing", "taken", "taken"]
        assert status.readable
        assert any("not on Snowflake itself" in note for note in status.notes)
        assert any("one by one" in note for note in status.notes)
        # One table that can't be read doesn't hide the others.
        account.fail("T1", code="003001", message="Insufficient privileges.")
        account.fail(r"zones.+ AS T0$", code="003001", message="Insufficient privileges.")
        status = setup.status(tables, session)
    assert [table.state for table in status.tables] == ["current", "unknown", "missing", "taken", "taken"]
    assert "Insufficient privileges" in str(status.tables[1].reason)


def test_status_of_an_account_that_has_nothing(account: SnowflakeAccount) -> None:
    setup = open_setup(account.url)
    with setup.session() as session:
        status = setup.status([TRIPS], session)
    assert status.readable is None
    assert [table.state for table in status.tables] == ["missing"]


def test_recreating_replaces_a_table_in_one_step(account: SnowflakeAccount, setup: SnowflakeSetup) -> None:
    make_target(setup).deliver(event(changed(TRIPS)), None)
    later = lake_table("nyc.trips", version=2)
    account.statements.clear()
    with setup.session() as session:
        setup.recreate([later], session)
    assert account.made()[0].startswith('CREATE OR REPLACE ICEBERG TABLE "LAKE"."nyc"."trips"')
    assert account.table("nyc", "trips").path == path_of(later)


# as the settings have it ----------------------------------------------------------------------------------------------


def test_the_table_s_id_is_read_from_its_metadata_file(
    account: SnowflakeAccount, setup: SnowflakeSetup, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    schema = IcebergSchema(NestedField(1, "id", LongType(), required=False))
    made = new_table_metadata(schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, f"{WAREHOUSE}/t", {})
    store = MemoryStore()
    store.create(TRIPS.metadata_location, made.model_dump_json(by_alias=True).encode())
    monkeypatch.setattr("lakegate.iceberg.files.open_store", lambda *_: store)
    section = setup.section
    target = open_downstream("snowflake", section, DownstreamContext(tmp_path, WAREHOUSE, Settings()))
    target.deliver(event(changed(TRIPS)), None)
    assert account.table("nyc", "trips").comment == f"lakegate nyc.trips (table {made.table_uuid})"
    with pytest.raises(NotFoundError, match=r"Metadata file .+ doesn't exist"):
        target.deliver(event(changed(ZONES)), None)


def test_a_lake_on_this_machine_cannot_be_sent_to_snowflake(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="are on this machine"):
        open_downstream("snowflake", account_settings(), DownstreamContext(tmp_path, f"file://{tmp_path}", Settings()))
