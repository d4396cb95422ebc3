"""Snowflake's tables follow the lake's: the official connector against a simulated account."""

from __future__ import annotations

import random
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lakegate.config import Settings
from lakegate.downstream import DownstreamContext, open_downstream
from lakegate.downstream.snowflake import SnowflakeTarget
from lakegate.errors import ConfigurationError, DownstreamError, DownstreamUnavailableError, LakegateError
from lakegate.model.downstream import ChangedTable, DownstreamEvent
from lakegate.model.identifiers import TableIdentifier
from lakegate.ports import Downstream
from lakegate.wap.downstream import needed_states
from lakegate.wap.transaction import Transaction
from support.downstream_contract import DownstreamContract
from support.downstream_support import System, World, row
from support.snowflake_server import Object, SnowflakeAccount
from support.snowflake_support import KEY_VARIABLE, account_settings, private_key

ROOT = "s3://lake/wh/"
MEMORY = "mem://warehouse/"
"""Where the lakehouse in memory has its metadata files, as if that were a bucket."""
TABLES = [TableIdentifier.parse(name) for name in ("nyc.trips", "nyc.fares")]


def open_target(account: SnowflakeAccount, root: str = ROOT, **changes: Any) -> SnowflakeTarget:
    return SnowflakeTarget("snowflake", account_settings(**{"url": account.url, **changes}), root)


def path_of(table: str, version: int = 1, made: str = "1") -> str:
    return f"{table}_{made}/metadata/{version:05}.metadata.json"


def event(*tables: ChangedTable) -> DownstreamEvent:
    return DownstreamEvent(event_id="e1", kind="published", at=datetime(2026, 1, 31, tzinfo=UTC), tables=tables)


def changed(table: str = "nyc.trips", version: int = 1, made: str = "1") -> DownstreamEvent:
    return event(ChangedTable(table=table, after=ROOT + path_of(table, version, made)))


def dropped(table: str = "nyc.trips") -> DownstreamEvent:
    return event(ChangedTable(table=table, before=ROOT + path_of(table), dropped=True))


def refusal(account: SnowflakeAccount, **changes: Any) -> LakegateError:
    with pytest.raises(LakegateError) as caught:
        open_target(account, **changes).deliver(changed(), None)
    return caught.value


class TestSnowflake(DownstreamContract):
    @pytest.fixture
    def target(self, account: SnowflakeAccount) -> Downstream:
        return open_target(account, "s3://lake/")

    @pytest.fixture
    def away(self, account: SnowflakeAccount) -> Downstream:
        account.fail("login-request", status=503, times=99)
        return open_target(account, "s3://lake/")

    @pytest.fixture
    def refusing(self, account: SnowflakeAccount, monkeypatch: pytest.MonkeyPatch) -> Downstream:
        monkeypatch.setenv("TEST_SNOWFLAKE_TOKEN", "hunter2hunter2")
        return open_target(account, "s3://lake/", private_key=None, token="env:TEST_SNOWFLAKE_TOKEN")


# tables ---------------------------------------------------------------------------------------------------------------


def test_a_table_is_created_refreshed_replaced_and_dropped_in_one_session(account: SnowflakeAccount) -> None:
    target = open_target(account)
    target.deliver(changed(), None)
    target.deliver(changed(version=2), None)
    assert account.table("nyc", "trips").path == path_of("nyc.trips", 2)
    target.deliver(changed(made="2"), None)
    assert account.table("nyc", "trips").path == path_of("nyc.trips", made="2")
    for _ in range(2):
        target.deliver(dropped(), None)
    assert account.databases["LAKE"]["nyc"] == {}
    options = "EXTERNAL_VOLUME = 'LAKEGATE' CATALOG = 'LAKEGATE' METADATA_FILE_PATH"
    assert account.made() == [
        'CREATE SCHEMA IF NOT EXISTS "LAKE"."nyc"',
        (
            f'CREATE ICEBERG TABLE "LAKE"."nyc"."trips" {options} = \'{path_of("nyc.trips")}\' '
            "COMMENT = 'lakegate nyc.trips in nyc.trips_1'"
        ),
        f'ALTER ICEBERG TABLE "LAKE"."nyc"."trips" REFRESH \'{path_of("nyc.trips", 2)}\'',
        (
            f'CREATE OR REPLACE ICEBERG TABLE "LAKE"."nyc"."trips" {options} = \'{path_of("nyc.trips", made="2")}\' '
            "COMMENT = 'lakegate nyc.trips in nyc.trips_2'"
        ),
        'DROP ICEBERG TABLE IF EXISTS "LAKE"."nyc"."trips"',
    ]
    assert len(account.logins) == 1
    del target
    assert not account.sessions


def test_names_are_quoted(account: SnowflakeAccount) -> None:
    account.databases['odd "lake"'] = {}
    open_target(account, database='odd "lake"').deliver(changed("nyc.select"), None)
    assert account.table("nyc", "select", 'odd "lake"').path == path_of("nyc.select")


def test_upper_case_names_need_no_quotes(account: SnowflakeAccount) -> None:
    target = open_target(account, case="upper")
    for version in (1, 2):
        target.deliver(changed("nyc.raw.Trips", version), None)
    assert account.table("NYC.RAW", "TRIPS").path == path_of("nyc.raw.Trips", 2)
    with pytest.raises(DownstreamError, match=r"didn't create it for nyc\.raw\.trips"):
        target.deliver(changed("nyc.raw.trips"), None)


@pytest.mark.parametrize("kind", ["VIEW", "ICEBERG TABLE"])
def test_what_lakegate_did_not_create_is_never_touched(account: SnowflakeAccount, kind: str) -> None:
    account.databases["LAKE"]["nyc"] = {"trips": Object(kind, "by hand", "x")}
    assert isinstance(refusal(account), DownstreamError)
    open_target(account).deliver(dropped(), None)
    assert account.table("nyc", "trips") == Object(kind, "by hand", "x")


def test_a_file_outside_of_the_volume_is_refused(account: SnowflakeAccount) -> None:
    elsewhere = ChangedTable(table="nyc.trips", after="s3://elsewhere/t/metadata/1.json")
    with pytest.raises(DownstreamError, match="isn't below the warehouse"):
        open_target(account).deliver(event(elsewhere), None)


def test_a_lake_on_this_machine_cannot_be_sent_to_snowflake(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="are on this machine"):
        open_downstream("snowflake", account_settings(), DownstreamContext(tmp_path, f"file://{tmp_path}", Settings()))


def test_a_test_looks_for_everything_and_changes_nothing(account: SnowflakeAccount) -> None:
    assert "Signed in to ACME as LAKEGATE" in open_target(account).test()
    for setting in ("warehouse", "external_volume", "catalog_integration", "database"):
        with pytest.raises(DownstreamError, match=r"'OTHER' (does not|doesn't) exist"):
            open_target(account, **{setting: "OTHER"}).test()
    assert account.made() == []


# sessions -------------------------------------------------------------------------------------------------------------


def test_a_session_that_ended_is_opened_again(account: SnowflakeAccount) -> None:
    target = open_target(account)
    target.deliver(changed(), None)
    account.end_sessions()
    target.deliver(changed(version=2), None)
    assert account.table("nyc", "trips").path == path_of("nyc.trips", 2)
    assert [login["AUTHENTICATOR"] for login in account.logins] == ["SNOWFLAKE_JWT", "SNOWFLAKE_JWT"]
    assert not any("PASSWORD" in login for login in account.logins)
    assert not any("telemetry" in path for path, _ in account.requests)


def test_a_token_is_read_again_when_it_expired(account: SnowflakeAccount, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("first-token")
    account.tokens = {"first-token"}
    target = open_target(account, private_key=None, token=f"file:{token}")
    target.deliver(changed(), None)
    # Another program replaces the token; Snowflake ends the session and takes no old token.
    token.write_text("second-token")
    account.tokens = {"second-token"}
    account.end_sessions()
    target.deliver(changed(version=2), None)
    assert [login["TOKEN"] for login in account.logins] == ["first-token", "second-token"]


def test_a_programmatic_access_token_is_one(account: SnowflakeAccount, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SNOWFLAKE_TOKEN", "pat-1")
    open_target(account, private_key=None, token="env:TEST_SNOWFLAKE_TOKEN", token_type="programmatic").test()
    assert (account.logins[0]["AUTHENTICATOR"], account.logins[0]["TOKEN"]) == ("PROGRAMMATIC_ACCESS_TOKEN", "pat-1")


def test_an_encrypted_key_needs_its_passphrase(account: SnowflakeAccount, monkeypatch: pytest.MonkeyPatch) -> None:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    key = load_pem_private_key(private_key().encode(), None)
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"sesame")).decode()
    # As in a variable of one line.
    monkeypatch.setenv(KEY_VARIABLE, encrypted.replace("\n", "\\n"))
    monkeypatch.setenv("TEST_PASSPHRASE", "sesame")
    open_target(account, private_key_passphrase="env:TEST_PASSPHRASE").test()
    assert "passphrase" in refusal(account).message
    monkeypatch.setenv("TEST_PASSPHRASE", "wrong-one")
    assert "passphrase is wrong" in refusal(account, private_key_passphrase="env:TEST_PASSPHRASE").message
    monkeypatch.setenv(KEY_VARIABLE, "not a key")
    assert "not a key" not in refusal(account).message


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"user": "NOBODY"}, "user 'NOBODY' with role 'LAKEGATE': .*JWT token is invalid"),
        ({"role": "nope"}, "role 'nope': .*does not exist or not authorized"),
    ],
)
def test_a_refused_sign_in_says_what_to_check(account: SnowflakeAccount, changes: dict[str, Any], reason: str) -> None:
    error = refusal(account, **changes)
    assert isinstance(error, DownstreamError)
    assert re.search(reason, error.message)
    assert "lakegate admin downstream test snowflake" in str(error.hint)


def test_an_account_that_does_not_exist(account: SnowflakeAccount) -> None:
    account.fail("login-request", status=404, times=9)
    assert "has no account 'acme-lake'" in refusal(account).message


def test_one_that_stays_busy_is_tried_again_later(account: SnowflakeAccount) -> None:
    account.fail("SHOW", status=503, times=99)
    error = refusal(account, timeout_s=0.5)
    assert isinstance(error, DownstreamUnavailableError)
    assert "'acme-lake' doesn't answer" in error.message
    account.faults.clear()
    account.fail("SHOW", code="000603", message="SQL execution internal error:\nProcessing aborted.")
    assert isinstance(refusal(account), DownstreamUnavailableError)


def test_what_snowflake_says_steers_no_terminal(account: SnowflakeAccount) -> None:
    account.missing.add(path_of("nyc.trips"))
    assert "was not found" in refusal(account).message
    account.fail("SHOW", code="001234", message="SQL error:\n\x1b[31mred\u202e [bold]loud[/] \r\n second")
    message = refusal(account).message
    assert message.isprintable()
    assert "[bold]loud[/]" in message


# through the outbox ---------------------------------------------------------------------------------------------------


class SnowflakeSystem(System):
    """The account, subscribed as by the settings."""

    account: SnowflakeAccount

    def open(self) -> Downstream:
        # A new process each time, so a new session, too.
        return open_target(self.account, MEMORY)


def world_with(account: SnowflakeAccount) -> World:
    system = SnowflakeSystem("snowflake", mirrors=True)
    system.account = account
    return World(system)


def shown(account: SnowflakeAccount) -> dict[str, str]:
    tables = account.databases["LAKE"].get("nyc", {})
    return {f"nyc.{name}": f"{MEMORY}{one.path}" for name, one in tables.items()}


def on_main(world: World) -> dict[str, str]:
    found = (world.catalog.get_table(table, world.head()) for table in TABLES)
    return {str(one.table): one.metadata_location for one in found if one is not None}


def test_an_account_that_is_away_misses_nothing_and_gc_spares_what_it_shows(account: SnowflakeAccount) -> None:
    world = world_with(account)
    world.add("a", row(1))
    before = shown(account)
    assert before == on_main(world) != {}
    account.fail("login-request", status=503, times=99)
    assert world.add("b", row(2)).status == "published"
    assert world.add("c", row(3)).status == "published"
    assert shown(account) == before
    needed = {pointer.metadata_location for pointer in needed_states(world.context)}
    assert {*before.values(), *on_main(world).values()} <= needed
    account.faults.clear()
    world.later(hours=2)
    assert shown(account) == on_main(world)
    # The two publishes were one refresh.
    assert sum(statement.startswith(("ALTER", "CREATE OR")) for statement in account.statements) == 1
    world.undo("c")
    assert shown(account) == on_main(world)


def test_whatever_fails_on_the_way_snowflake_ends_where_main_is(account: SnowflakeAccount) -> None:
    world = world_with(account)
    chance = random.Random(20260131)

    def both(tx: Transaction) -> None:
        tx.append("nyc.trips", row(1))
        tx.append("nyc.fares", row(2))

    for number in range(12):
        match chance.randrange(6):
            case 0:
                account.fail("login-request", status=503, times=3)
            case 1:
                account.fail("REFRESH|CREATE", status=503, times=3)
            case 2:
                account.fail("REFRESH", code="003001", message="Insufficient privileges.")
            case 3:
                account.fail("SHOW ICEBERG", code="390111", message="Session no longer exists.")
            case _:
                account.faults.clear()
        if number % 4 == 3:
            world.work(f"r{number}", both)
        else:
            world.add(f"r{number}", row(number), table=chance.choice(["nyc.trips", "nyc.fares"]))
    account.faults.clear()
    world.journal.outbox.again()
    world.later(hours=2)
    assert shown(account) == on_main(world)
    assert set(on_main(world)) == {"nyc.trips", "nyc.fares"}
