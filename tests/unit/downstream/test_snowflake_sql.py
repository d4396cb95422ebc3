"""The SQL that lakegate sends to Snowflake, and the paths and permissions that it needs."""

from __future__ import annotations

import json
import logging
import re
import shlex
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import pytest
import sqlglot
from sqlglot import TokenType, exp

from lakegate.config import Settings
from lakegate.downstream.snowflake import sql
from lakegate.downstream.snowflake.plan import AccountState, make_plan
from lakegate.downstream.snowflake.sql import QualifiedName, TableComment
from lakegate.downstream.snowflake.storage import describe_location, required_permissions, volume_location
from lakegate.errors import ConfigurationError, DownstreamError
from lakegate.model.identifiers import TableIdentifier
from support.snowflake_support import ROLE_ARN, WAREHOUSE, account_settings, lake_settings, lake_table

ROOT = Path(__file__).resolve().parents[3]
ODD = QualifiedName("LAKE", "odd schema", 'it\'s "odd"')
GOLDEN = """\
CREATE EXTERNAL VOLUME IF NOT EXISTS "LAKEGATE"
  STORAGE_LOCATIONS = ((
    NAME = 'lakegate'
    STORAGE_PROVIDER = 'S3'
    STORAGE_BASE_URL = 's3://lake/wh/'
    STORAGE_AWS_ROLE_ARN = 'arn:aws:iam::123456789012:role/snowflake-lake'
  ))
  ALLOW_WRITES = FALSE
  COMMENT = 'Files of a lake, published by lakegate';
CREATE CATALOG INTEGRATION IF NOT EXISTS "LAKEGATE"
  CATALOG_SOURCE = OBJECT_STORE
  TABLE_FORMAT = ICEBERG
  ENABLED = TRUE;
CREATE DATABASE IF NOT EXISTS "LAKE";
CREATE SCHEMA IF NOT EXISTS "LAKE"."nyc";
CREATE ICEBERG TABLE "LAKE"."nyc"."trips"
  EXTERNAL_VOLUME = 'LAKEGATE'
  CATALOG = 'LAKEGATE'
  METADATA_FILE_PATH = 'nyc.trips_6c1f/metadata/00001.metadata.json'
  COMMENT = 'lakegate nyc.trips (table 6c1f)';
GRANT USAGE ON DATABASE "LAKE" TO ROLE "ANALYST";
GRANT USAGE ON SCHEMA "LAKE"."nyc" TO ROLE "ANALYST";
GRANT SELECT ON ICEBERG TABLE "LAKE"."nyc"."trips" TO ROLE "ANALYST";
"""


def plan_sql(**changes: Any) -> list[str]:
    settings = account_settings(**changes)
    steps = make_plan("snowflake", settings, Settings(), volume_location(WAREHOUSE), [lake_table()], AccountState())
    return [step.sql for step in steps if step.sql]


def parsed(statement: str) -> Any:
    [tree] = sqlglot.parse(statement, dialect="snowflake")
    return tree


def test_an_empty_account_gets_this_sql() -> None:
    assert "".join(f"{one};\n" for one in plan_sql(readers=["ANALYST"])) == GOLDEN


def test_sqlglot_reads_what_it_knows_of_it_as_it_is_meant(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "sqlglot")
    trees = [parsed(one) for one in plan_sql(readers=["ANALYST"])]
    # Its dialect has no external volumes, catalog integrations and grants on Iceberg tables: for those, the text above
    # is all there is to compare. Likewise REFRESH, below.
    assert [type(tree) for tree in trees] == [
        *(exp.Command, exp.Command),
        *(exp.Create, exp.Create, exp.Create),
        *(exp.Grant, exp.Grant, exp.Command),
    ]
    table = trees[4]
    assert table.find(exp.IcebergProperty)
    assert [part.name for part in table.this.parts] == ["LAKE", "nyc", "trips"]
    assert all(part.quoted for part in table.this.parts)


@pytest.mark.parametrize("name", ['"; DROP TABLE x; --', "it's", "back\\slash", "emoji 🚕", 'a"".b', "\u202eabc"])
def test_nothing_in_a_name_or_path_becomes_sql(name: str) -> None:
    place = QualifiedName("LAKE", name, name)
    settings = account_settings()
    create = sql.create_table(place, f"{name}/m.json", TableComment("nyc.trips", "6c1f"), settings, replace=True)
    tree = parsed(create)
    assert [part.name for part in tree.this.parts] == ["LAKE", name, name]
    path = next(one for one in tree.find_all(exp.Property) if one.name == "METADATA_FILE_PATH")
    assert path.args["value"].name == f"{name}/m.json"
    tokens = sqlglot.tokenize(sql.refresh_table(place, f"{name}/m.json"), dialect="snowflake")
    assert [token.text for token in tokens if token.token_type in {TokenType.IDENTIFIER, TokenType.STRING}] == [
        *place,
        f"{name}/m.json",
    ]
    assert not any(token.token_type is TokenType.SEMICOLON for token in tokens)


def test_the_other_statements_quote_likewise() -> None:
    assert sql.refresh_table(ODD, "m.json") == (
        'ALTER ICEBERG TABLE "LAKE"."odd schema"."it\'s ""odd""" REFRESH \'m.json\''
    )
    assert (
        parsed(sql.drop_table(ODD)).sql("snowflake")
        == 'DROP ICEBERG TABLE IF EXISTS "LAKE"."odd schema"."it\'s ""odd"""'
    )


@pytest.mark.parametrize(
    ("table", "changes", "expected"),
    [
        ("nyc.trips", {}, ("LAKE", "nyc", "trips")),
        ("nyc.trips", {"case": "upper"}, ("LAKE", "NYC", "TRIPS")),
        ("nyc.trips", {"schemas": {"nyc": "Taxi"}}, ("LAKE", "Taxi", "trips")),
        ("nyc.trips", {"schemas": {"nyc": "Taxi"}, "case": "upper"}, ("LAKE", "Taxi", "TRIPS")),
        ("a.b.trips", {}, ("LAKE", "a.b", "trips")),
        ("a.b.trips", {"schemas": {"a.b": "AB"}}, ("LAKE", "AB", "trips")),
    ],
)
def test_a_namespace_is_a_schema(table: str, changes: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert sql.qualified_name(TableIdentifier.parse(table), account_settings(**changes)) == expected


def test_names_that_snowflake_reserves_or_that_meet_are_refused() -> None:
    with pytest.raises(DownstreamError, match="can't be a schema"):
        sql.qualified_name(TableIdentifier.parse("information_schema.t"), account_settings(case="upper"))
    tables = [lake_table("nyc.trips"), lake_table("nyc.Trips")]
    with pytest.raises(DownstreamError, match=r"nyc.trips and nyc.Trips would both be"):
        make_plan(
            "snowflake", account_settings(case="upper"), Settings(), volume_location(WAREHOUSE), tables, AccountState()
        )


# storage --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("warehouse", "base_url"),
    [
        ("s3://lake", "s3://lake/"),
        ("S3A://lake/wh/", "s3://lake/wh/"),
        ("gs://lake/wh", "gcs://lake/wh/"),
        ("abfss://lake@acme.dfs.core.windows.net/wh", "azure://acme.blob.core.windows.net/lake/wh/"),
    ],
)
def test_paths_are_relative_to_the_volume(warehouse: str, base_url: str) -> None:
    location = volume_location(warehouse)
    assert location.base_url == base_url
    assert location.relative(f"{warehouse.rstrip('/')}/t_1/metadata/1.json") == "t_1/metadata/1.json"
    with pytest.raises(DownstreamError, match="isn't below the warehouse"):
        location.relative(f"{warehouse.rstrip('/')}2/t_1/metadata/1.json")


def test_a_lake_on_this_machine_says_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match="are on this machine") as caught:
        volume_location("file:///home/ada/lake")
    assert "keep-tables-on-s3" in str(caught.value.hint)


def test_a_volume_on_s3_needs_a_role_and_its_trust() -> None:
    location = volume_location(WAREHOUSE)
    with pytest.raises(ConfigurationError, match="storage_role_arn is missing"):
        describe_location(location, account_settings(storage_role_arn=None), Settings())
    with pytest.raises(ConfigurationError, match="an S3-compatible store") as caught:
        describe_location(location, account_settings(), Settings.model_validate({"s3": {"endpoint": "http://h:1"}}))
    assert "s3compat://lake/wh/" in str(caught.value.hint)
    described = {
        "STORAGE_AWS_ROLE_ARN": ROLE_ARN,
        "STORAGE_AWS_IAM_USER_ARN": "arn:aws:iam::94:user/hz",
        "STORAGE_AWS_EXTERNAL_ID": "ACME_1=",
    }
    needed = required_permissions(location, described)
    [statement] = needed.documents["trust"]["Statement"]
    assert statement["Principal"] == {"AWS": "arn:aws:iam::94:user/hz"}
    assert statement["Condition"] == {"StringEquals": {"sts:ExternalId": "ACME_1="}}
    permissions = json.dumps(needed.documents["permissions"])
    assert "arn:aws:s3:::lake/wh/*" in permissions
    assert not any(word in permissions for word in ("Put", "Delete", "s3:*"))
    words = shlex.split(needed.what[0])
    assert words[:5] == ["aws", "iam", "put-role-policy", "--role-name", "snowflake-lake"]
    assert json.loads(words[-1]) == needed.documents["permissions"]
    words = shlex.split(needed.what[1])
    assert words[:5] == ["aws", "iam", "update-assume-role-policy", "--role-name", "snowflake-lake"]
    assert json.loads(words[-1]) == needed.documents["trust"]


def test_government_regions_are_a_provider_of_their_own() -> None:
    arn = ROLE_ARN.replace("aws", "aws-us-gov", 1)
    text = describe_location(volume_location(WAREHOUSE), account_settings(storage_role_arn=arn), Settings())
    assert "'S3GOV'" in text
    assert "'s3gov://lake/wh/'" in text
    needed = required_permissions(volume_location(WAREHOUSE), {"STORAGE_AWS_ROLE_ARN": arn})
    assert "arn:aws-us-gov:s3:::lake" in json.dumps(needed.documents["permissions"])


def test_volumes_on_google_and_azure() -> None:
    google = volume_location("gs://lake/wh")
    assert "STORAGE_PROVIDER = 'GCS'" in describe_location(google, account_settings(), Settings())
    said = required_permissions(google, {"STORAGE_GCP_SERVICE_ACCOUNT": "snow@iam"}).what
    assert all("gs://lake --member=serviceAccount:snow@iam" in one for one in said)
    azure = volume_location("abfss://lake@acme.dfs.core.windows.net/wh")
    with pytest.raises(ConfigurationError, match="azure_tenant_id is missing"):
        describe_location(azure, account_settings(), Settings())
    tenant = "a123b4c5-1234-123a-a12b-1a23b45678c9"
    assert tenant in describe_location(azure, account_settings(azure_tenant_id=tenant), Settings())
    consent, grant = required_permissions(
        azure, {"AZURE_CONSENT_URL": "https://c", "AZURE_MULTI_TENANT_APP_NAME": "snow_17"}
    ).what
    assert "https://c" in consent
    assert "app snow " in grant


# settings -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"account": "https://acme.snowflakecomputing.com"}, "without '.snowflakecomputing.com'"),
        ({"private_key": None}, "needs either 'private_key' or 'token'"),
        ({"token": "env:T"}, "needs either 'private_key' or 'token'"),
        ({"private_key": "-----BEGIN PRIVATE KEY-----"}, "is a secret"),
        ({"password": "hunter2"}, "password"),
        ({"url": "http://acme.example.com"}, "must start with https"),
        ({"role": ""}, "1 to 255"),
        ({"storage_role_arn": "arn:aws:iam::1:role/x' ALLOW_WRITES"}, "storage_role_arn"),
    ],
)
def test_settings_that_cannot_be(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        lake_settings(**{"url": None, **changes})


def test_the_settings_in_the_guide_are_settings() -> None:
    page = (ROOT / "docs/how-to/read-from-snowflake.md").read_text(encoding="utf-8")
    [shown] = re.findall(r"```toml\n(.+?)```", page, re.DOTALL)
    assert Settings.model_validate(tomllib.loads(textwrap.dedent(shown))).downstream["snowflake"].type == "snowflake"
