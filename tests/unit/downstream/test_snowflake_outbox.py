"""From a publish through the outbox to a Snowflake that fails at random."""

from __future__ import annotations

import random

from lakegate.downstream.snowflake import SnowflakeTarget
from lakegate.downstream.snowflake.storage import VolumeLocation
from lakegate.model.identifiers import TableIdentifier
from lakegate.ports import Downstream
from lakegate.storage.objects import ObjectAddress
from lakegate.wap.downstream import needed_states
from lakegate.wap.transaction import Transaction
from support.downstream_support import System, World, row
from support.snowflake_server import SnowflakeAccount
from support.snowflake_support import account_settings

TRIPS, FARES = TableIdentifier.parse("nyc.trips"), TableIdentifier.parse("nyc.fares")
# Where the lakehouse in memory has its metadata files, as if that were a bucket.
ROOT = "mem://metadata/"
LOCATION = VolumeLocation(ROOT, ObjectAddress("s3://lake", "s3", "lake", "wh/"), "s3://lake/wh/")


class SnowflakeSystem(System):
    """The account, subscribed as by the settings."""

    account: SnowflakeAccount

    def open(self) -> Downstream:
        # A new process each time, so a new session, too.
        settings = account_settings(self.account.url)
        return SnowflakeTarget("snowflake", settings, LOCATION, lambda table, _: str(table))


def world_with(account: SnowflakeAccount) -> World:
    system = SnowflakeSystem("snowflake", mirrors=True)
    system.account = account
    account.furnish()
    return World(system)


def shown(account: SnowflakeAccount) -> dict[str, str]:
    tables = account.databases["LAKE"].get("nyc", {})
    return {f"nyc.{name}": f"{ROOT}{one.path}" for name, one in tables.items()}


def on_main(world: World) -> dict[str, str]:
    found = (world.catalog.get_table(table, world.head()) for table in (TRIPS, FARES))
    return {str(one.table): one.metadata_location for one in found if one is not None}


def test_every_publish_and_revert_arrives(account: SnowflakeAccount) -> None:
    world = world_with(account)
    world.add("a", row(1))
    assert shown(account) == on_main(world) != {}
    world.add("b", row(2))
    world.add("f", row(3), table=FARES)
    assert shown(account) == on_main(world)
    world.undo("f")
    assert shown(account) == on_main(world)
    assert set(shown(account)) == {"nyc.trips"}
    world.undo("b")
    assert shown(account) == on_main(world)


def test_an_account_that_is_away_misses_nothing_and_gc_spares_what_it_shows(account: SnowflakeAccount) -> None:
    world = world_with(account)
    world.add("a", row(1))
    before = shown(account)
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
    assert sum("REFRESH" in statement for statement in account.statements) == 1


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
            world.add(f"r{number}", row(number), table=chance.choice([TRIPS, FARES]))
    account.faults.clear()
    world.journal.outbox.again()
    world.later(hours=2)
    assert shown(account) == on_main(world)
    assert set(on_main(world)) == {"nyc.trips", "nyc.fares"}
