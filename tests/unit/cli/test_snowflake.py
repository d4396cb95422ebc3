"""``lakegate snowflake``: its output, questions and exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from lakegate.config import Settings, SnowflakeDownstream
from lakegate.downstream.snowflake import SnowflakeTarget
from lakegate.downstream.snowflake.storage import volume_location
from lakegate.errors import LakegateError
from lakegate.model.downstream import ChangedTable, Delivery, DownstreamEvent, DownstreamStatus
from lakegate.model.identifiers import TableIdentifier
from support.cli_support import METADATA, START, FakeLake, invoke
from support.snowflake_server import Object, SnowflakeAccount, snowflake_account
from support.snowflake_support import KEY_VARIABLE, WAREHOUSE, lake_settings, lake_table, private_key, section

pytestmark = pytest.mark.usefixtures("in_a_project")


class SnowflakeLake(FakeLake):
    """A lake with two tables, whose settings name an account."""

    def __init__(self, settings: Settings, *names: str, warehouse: str = WAREHOUSE) -> None:
        self.there = [_metadata(name) for name in names or ("nyc.trips", "nyc.zones")]
        self.outbox = DownstreamStatus(name="snowflake", sent=3, last_sent_at=START)
        super().__init__(tables=self.there, downstream_status=[self.outbox])
        self.settings = settings
        self.warehouse = warehouse

    def downstream_send(self, name: str, tables: list[str]) -> list[Delivery]:
        """Deliver as the outbox does: an event for each table, and none after a refusal."""
        section = self.settings.downstream[name]
        assert isinstance(section, SnowflakeDownstream)
        target = SnowflakeTarget(name, section, volume_location(self.warehouse), lambda *_: "6c1f")
        tried = []
        for number, table in enumerate(tables):
            after = next(one.metadata_location for one in self.there if str(one.table) == table)
            event = DownstreamEvent(
                event_id="e", kind="current", at=START, tables=(ChangedTable(table=table, after=after),)
            )
            delivery = Delivery(
                delivery_id=number, downstream=name, kind="current", ref="main", tables=(table,), queued_at=START
            )
            try:
                target.deliver(event, None)
            except LakegateError as error:
                tried.append(delivery.model_copy(update={"state": "failed", "reason": error.message}))
                break
            tried.append(delivery.model_copy(update={"state": "sent"}))
        return tried


def _metadata(name: str) -> Any:
    table = lake_table(name)
    changes = {"table": TableIdentifier.parse(name), "metadata_location": table.metadata_location, "uuid": table.uuid}
    return METADATA.model_copy(update=changes)


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[SnowflakeAccount]:
    monkeypatch.setenv(KEY_VARIABLE, private_key())
    monkeypatch.delenv("COLUMNS", raising=False)
    with snowflake_account() as served:
        yield served


def test_from_plan_to_tables(account: SnowflakeAccount) -> None:
    lake = SnowflakeLake(lake_settings(account.url, readers=["ANALYST"]))
    planned = invoke("snowflake plan", lake)
    assert planned.exit_code == 0, planned.output
    assert 'CREATE ICEBERG TABLE "LAKE"."nyc"."trips"' in planned.stdout
    assert "10 statements, 0 exist already; nothing was changed" in planned.stdout
    assert "lakegate snowflake apply" in planned.stdout
    assert account.made() == []
    assert invoke("snowflake apply", lake).exit_code == 2  # stdin isn't a terminal
    assert account.made() == []

    account.readable = False
    stopped = invoke("snowflake apply --yes", lake)
    assert stopped.exit_code == 3
    assert "9 left" in stopped.stdout
    assert '"sts:ExternalId": "ACME_SFCRole=2_iMI2Dcus3iSF+A="' in stopped.stdout
    assert "Snowflake can't read the files yet" in stopped.stdout
    assert "CREATE EXTERNAL VOLUME" in stopped.stderr
    told = invoke("snowflake status", lake).stdout
    assert "Snowflake can't read it" in told
    assert "aws iam update-assume-role-policy --role-name snowflake-lake" in told

    account.readable = True
    done = json.loads(invoke("snowflake apply --yes -o json", lake).stdout)
    assert (len(done["done"]), done["failed"], done["left"]) == (9, [], 0)
    again = invoke("snowflake apply --yes", lake)
    assert (again.exit_code, "nothing was missing" in again.stdout) == (0, True)
    assert "nothing would change" in invoke("snowflake plan", lake).stdout
    status = invoke("snowflake status", lake).stdout
    assert status.count("current") == 2
    assert "not on Snowflake itself" in status
    assert "one by one" in status


def test_quarantine_tables_stay_out(account: SnowflakeAccount) -> None:
    mirrored = lake_settings(account.url, readers=["ANALYST"])
    lake = SnowflakeLake(mirrored, "nyc.trips", "nyc.trips__quarantine")
    assert invoke("snowflake apply --yes", lake).exit_code == 0
    assert [name for name in account.made() if "trips" in name]
    assert not any("quarantine" in statement for statement in account.made())
    refused = invoke("snowflake refresh nyc.trips__quarantine", lake)
    assert (refused.exit_code, "isn't on main, or the settings don't send it" in refused.stderr) == (2, True)


def test_a_plan_drops_a_quarantine_table_that_was_sent_before(account: SnowflakeAccount) -> None:
    lake = SnowflakeLake(lake_settings(account.url), "nyc.trips", "nyc.trips__quarantine")
    account.furnish()
    lake.downstream_send("snowflake", ["nyc.trips", "nyc.trips__quarantine"])
    steps = json.loads(invoke("snowflake plan -o json", lake).stdout)
    assert [step["name"] for step in steps if step["action"] == "drop"] == ['"LAKE"."nyc"."trips__quarantine"']


def test_a_plan_without_a_connection_is_sql_for_somebody_else(account: SnowflakeAccount) -> None:
    lake = SnowflakeLake(lake_settings(account.url))
    text = invoke("snowflake plan --offline -o sql", lake).stdout
    assert text.startswith('CREATE EXTERNAL VOLUME IF NOT EXISTS "LAKEGATE"\n')
    statements = [one.strip().partition("\n")[0] for one in text.split(";\n")[:-1]]
    assert statements == [
        'CREATE EXTERNAL VOLUME IF NOT EXISTS "LAKEGATE"',
        'GRANT USAGE ON EXTERNAL VOLUME "LAKEGATE" TO ROLE "LAKEGATE"',
        'CREATE CATALOG INTEGRATION IF NOT EXISTS "LAKEGATE"',
        'GRANT USAGE ON INTEGRATION "LAKEGATE" TO ROLE "LAKEGATE"',
        'CREATE DATABASE IF NOT EXISTS "LAKE"',
        'GRANT OWNERSHIP ON DATABASE "LAKE" TO ROLE "LAKEGATE"',
        'USE ROLE "LAKEGATE"',
        'USE WAREHOUSE "LAKEGATE_WH"',
        'CREATE SCHEMA IF NOT EXISTS "LAKE"."nyc"',
        'CREATE ICEBERG TABLE "LAKE"."nyc"."trips"',
        'CREATE ICEBERG TABLE "LAKE"."nyc"."zones"',
    ]
    assert account.requests == []
    steps = json.loads(invoke("snowflake plan --offline -o json", lake).stdout)
    assert [step["kind"] for step in steps] == [
        "external volume",
        "catalog integration",
        "database",
        "schema",
        "table",
        "table",
    ]


def test_refresh_shows_the_outcome_for_each_table(account: SnowflakeAccount) -> None:
    lake = SnowflakeLake(lake_settings(account.url), "nyc.trips", "nyc.zones", "nyc.fares")
    invoke("snowflake apply --yes", lake)
    account.databases["LAKE"]["nyc"]["zones"] = Object("VIEW")
    found = invoke("snowflake refresh", lake)
    assert found.exit_code == 3
    assert [line.split()[:2] for line in found.stdout.splitlines()[2:5]] == [
        ["refreshed", "nyc.trips"],
        ["failed", "nyc.zones"],
        ["waiting", "nyc.fares"],
    ]
    assert "lakegate didn't create it" in found.stdout
    assert "lakegate downstream status snowflake" in found.stderr
    account.statements.clear()
    told = json.loads(invoke("snowflake refresh nyc.trips --recreate -o json", lake).stdout)
    assert told == [{"table": "nyc.trips", "state": "sent", "reason": None}]
    assert [one.split(" ICEBERG")[0] for one in account.made()] == ["CREATE OR REPLACE", "ALTER"]
    unknown = invoke("snowflake refresh nyc.nope", lake)
    assert unknown.exit_code == 2
    assert "nyc.nope isn't on main" in unknown.stderr


def test_status_shows_what_waits(account: SnowflakeAccount) -> None:
    lake = SnowflakeLake(lake_settings(account.url))
    text = invoke("snowflake status", lake).stdout
    assert "3 events, last 2026-01-31T07:05:09Z" in text
    assert "doesn't exist" in text
    waits = lake.outbox.model_copy(update={"pending": 2, "failed": 1, "oldest": START, "reason": "No\x1b[31m rights."})
    lake.answers["downstream_status"] = [waits]
    text = invoke("snowflake status", lake).stdout
    assert "2 queued, 1 given up since 2026-01-31T07:05:09Z: No\\x1b[31m rights." in text
    assert "lakegate snowflake refresh" in text
    assert json.loads(invoke("snowflake status -o json", lake).stdout)["outbox"]["pending"] == 2


def test_apply_shows_what_is_in_the_way(account: SnowflakeAccount) -> None:
    lake = SnowflakeLake(lake_settings(account.url))
    account.databases["LAKE"] = {"nyc": {"trips": Object("VIEW")}}
    account.denied.add("CREATE INTEGRATION")
    found = invoke("snowflake apply --yes", lake)
    assert found.exit_code == 2
    assert "a view of this name exists" in found.stdout
    assert "may not do this" in found.stdout
    assert "plan --offline" in found.stdout


def test_only_the_tables_that_the_settings_choose(account: SnowflakeAccount) -> None:
    lake = SnowflakeLake(lake_settings(account.url, tables=["*.zones"]))
    steps = json.loads(invoke("snowflake plan --offline -o json", lake).stdout)
    assert [step["name"] for step in steps if step["kind"] == "table"] == ['"LAKE"."nyc"."zones"']


def test_missing_and_ambiguous_accounts_say_what_to_do() -> None:
    none = invoke("snowflake status", SnowflakeLake(Settings()))
    assert none.exit_code == 2
    assert "no Snowflake account called 'snowflake'" in none.stderr
    assert "docs/how-to/read-from-snowflake.md" in none.stderr
    two = Settings.model_validate({"downstream": {"eu": section(), "us": section()}})
    several = invoke("snowflake status", SnowflakeLake(two))
    assert "Pass --name: eu, us" in several.stderr
    assert invoke("snowflake plan --offline --name us", SnowflakeLake(two)).exit_code == 0
    local = invoke("snowflake plan --offline", SnowflakeLake(lake_settings(), warehouse="file:///home/ada/lake"))
    assert local.exit_code == 2
    assert "are on this machine, in file:///home/ada/lake" in " ".join(local.stderr.split())
