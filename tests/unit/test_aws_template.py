"""The template of a deployment: what the linter says of it, and what it promises of queues, secrets and permissions."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy_files import DEPLOY, load
from lakegate.aws.parameters import FILLED_IN, PARAMETERS
from lakegate.aws.stack import TEMPLATE
from lakegate.config import Settings, load_settings
from lakegate.intake.routes import Routes
from lakegate.local.artifacts import AWS, HADOOP_AWS, ICEBERG

SCHEDULED = {"lakegate": "notify late"}
"""As the function's test, in test_aws_lambda_work, has it."""
_INLINE_LIMIT = 51_200
_ANY_RESOURCE_ALLOWED = {"NetworkInterfaces"}


@pytest.fixture(scope="module")
def template() -> dict[str, Any]:
    """The template as the linter reads it: ``!Ref X`` is ``{"Ref": "X"}``."""
    read = "import json, sys; from cfnlint.decode import decode; print(json.dumps(decode(sys.argv[1])[0]))"
    done = subprocess.run([sys.executable, "-c", read, TEMPLATE], check=True, capture_output=True, text=True)
    loaded: dict[str, Any] = json.loads(done.stdout)
    return loaded


def test_the_linter_finds_nothing() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("cfn-lint"), TEMPLATE], check=False, capture_output=True, text=True
    )

    assert (done.stdout, done.returncode) == ("", 0)


def test_it_can_be_sent_without_a_bucket() -> None:
    assert TEMPLATE.stat().st_size < _INLINE_LIMIT


def test_each_parameter_has_its_option(template: dict[str, Any]) -> None:
    ours = {one.name: list(one.choices) for one in PARAMETERS} | {name: [] for name in FILLED_IN}
    theirs = {
        name: value["AllowedValues"] if isinstance(value.get("Default"), str) and "AllowedValues" in value else []
        for name, value in template["Parameters"].items()
    }

    assert ours == theirs
    assert all(value["Description"] for value in template["Parameters"].values())
    assert all("Default" in value for name, value in template["Parameters"].items() if name not in FILLED_IN)


def test_the_defaults_in_help_are_the_template_s(template: dict[str, Any]) -> None:
    told = {one.name: one.help.rpartition("Default: ")[2] for one in PARAMETERS if "Default: " in one.help}

    for name, text in told.items():
        if not text.endswith(".") and text != "none":
            assert str(template["Parameters"][name]["Default"]) == text, name


def test_messages_stay_invisible_six_times_as_long_as_a_call(template: dict[str, Any]) -> None:
    longest_window = template["Parameters"]["BatchWindow"]["MaxValue"]

    assert template["Mappings"]["Timeout"].keys() == set(template["Parameters"]["FunctionTimeout"]["AllowedValues"])
    for timeout, found in template["Mappings"]["Timeout"].items():
        assert found["Visibility"] == 6 * int(timeout) + longest_window
        assert int(found["Park"]) > found["Visibility"]


def _statements(template: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    def documents(value: Any) -> Iterator[dict[str, Any]]:
        if isinstance(value, dict):
            if "Statement" in value:
                yield value
            for part in value.values():
                yield from documents(part)
        elif isinstance(value, list):
            for part in value:
                yield from documents(part)

    for name, resource in template["Resources"].items():
        for document in documents(resource.get("Properties", {})):
            for statement in document["Statement"]:
                yield name, statement


def _actions(statement: dict[str, Any]) -> list[str]:
    return statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]


def test_permissions_name_their_resources(template: dict[str, Any]) -> None:
    allowed = [
        (name, statement)
        for name, statement in _statements(template)
        if statement["Effect"] == "Allow" and "Resource" in statement
    ]

    assert len(allowed) > 10
    for name, statement in allowed:
        assert not [action for action in _actions(statement) if "*" in action], name
        if statement["Sid"] not in _ANY_RESOURCE_ALLOWED:
            assert statement["Resource"] != "*", (name, statement["Sid"])


def test_the_function_deletes_no_object(template: dict[str, Any]) -> None:
    """As docs/how-to/keep-tables-on-s3.md says: those who write and publish read and put, and `gc` deletes."""
    of_objects = {
        action
        for name, statement in _statements(template)
        if name == "FunctionRole"
        for action in _actions(statement)
        if action.startswith("s3:")
    }

    assert of_objects == {"s3:GetObject", "s3:PutObject", "s3:ListBucket"}


def test_bucket_and_queues_are_closed_to_plain_http(template: dict[str, Any]) -> None:
    denied = {name for name, statement in _statements(template) if statement["Effect"] == "Deny"}

    assert denied == {"BucketPolicy", "QueuePolicy", "DeadLettersPolicy"}


def test_no_secret_is_a_parameter_or_an_output(template: dict[str, Any]) -> None:
    words = ("password", "token", "webhook")
    names = [*template["Parameters"], *template["Outputs"]]

    assert [name for name in names if any(word in name.lower() for word in words) and not name.endswith("Arn")] == []


def test_data_outlives_a_stack_that_is_deleted_by_hand(template: dict[str, Any]) -> None:
    kept = {name: one["DeletionPolicy"] for name, one in template["Resources"].items() if "DeletionPolicy" in one}

    assert kept == {
        "Bucket": "RetainExceptOnCreate",
        "CatalogObjects": "RetainExceptOnCreate",
        "CatalogRefs": "RetainExceptOnCreate",
        "Database": "Snapshot",
    }


def test_the_function_s_variables_are_settings(template: dict[str, Any], tmp_path: Path) -> None:
    """Each variable names a setting, and the two that hold JSON hold what lakegate reads."""
    variables = template["Resources"]["Function"]["Properties"]["Environment"]["Variables"]
    routes = variables["LAKEGATE_WATCH_ROUTES"]["Fn::If"][2]["Fn::Sub"]
    channels = variables["LAKEGATE_NOTIFY_CHANNELS"]["Fn::If"][1]["Fn::Sub"]
    routes = routes.replace("${Bucket}", "lake").replace("${LandingPrefix}", "landing/")
    arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:slack-a1b2c3"
    values = dict.fromkeys(variables, f"aws-secret:{arn}") | {
        "LAKEGATE_LOG_FORMAT": variables["LAKEGATE_LOG_FORMAT"],
        "LAKEGATE_CATALOG_URI": "http://nessie.lakegate-demo.internal:19120/api/v2",
        "LAKEGATE_CATALOG_WAREHOUSE": "s3://lake/warehouse",
        "LAKEGATE_ENGINE_URL": "sc://spark.lakegate-demo.internal:15002",
        "LAKEGATE_JOURNAL_URL": "postgresql://lakegate@database:5432/lakegate",
        "LAKEGATE_JOURNAL_PARK_S": "3600",
        "LAKEGATE_WATCH_ROUTES": routes,
        "LAKEGATE_NOTIFY_CHANNELS": channels.replace("${SlackSecretArn}", arn),
    }

    settings = load_settings(tmp_path, env=values)

    assert settings.notify.channels[0].url == f"aws-secret:{arn}"
    assert Routes(settings.watch.routes or ()).table("s3://lake/landing/nyc/trips/2026/a.parquet") == "nyc.trips"


def test_the_schedule_calls_the_function_with_what_it_knows(template: dict[str, Any]) -> None:
    late = template["Resources"]["Function"]["Properties"]["Events"]["Late"]

    assert late["Type"] == "Schedule"
    assert json.loads(late["Properties"]["Input"]) == SCHEDULED


def test_the_tables_files_are_not_taken_for_files_that_landed(template: dict[str, Any]) -> None:
    """Else a publish would be told of, and published again, for ever."""
    allowed = re.compile(template["Parameters"]["LandingPrefix"]["AllowedPattern"])
    warehouse = template["Outputs"]["Warehouse"]["Value"]["Fn::Sub"].rpartition("/")[2]

    assert [text for text in ("landing/", "a/b/", f"{warehouse}s/", f"x/{warehouse}/") if not allowed.match(text)] == []
    assert not allowed.match(f"{warehouse}/")
    assert not allowed.match(f"{warehouse}/landing/")


def test_a_file_is_given_up_before_its_message_is(template: dict[str, Any]) -> None:
    assert template["Parameters"]["MaxReceiveCount"]["MinValue"] >= Settings().watch.max_tries


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, part in value.items():
            if name == "Ref":
                yield part
            elif name == "Fn::GetAtt":
                yield part[0]
            else:
                yield from _references(part)
    elif isinstance(value, list):
        for part in value:
            yield from _references(part)


@pytest.mark.parametrize("service", ["CatalogService", "SparkService"])
def test_servers_are_started_when_their_image_can_be_fetched(template: dict[str, Any], service: str) -> None:
    resources = template["Resources"]

    assert {"PrivateRoute", "PrivateSubnetARoutes", "PrivateSubnetBRoutes"} <= {*_references(resources[service])}
    assert set(resources["WayOut"]["DependsOn"]) == {"PublicRoute", "PublicSubnetRoutes"}


def test_the_function_s_role_has_all_its_rights_from_its_beginning(template: dict[str, Any]) -> None:
    """CloudFormation waits for the role before it makes the function, and not for policies that are added to it."""
    assert [name for name, one in template["Resources"].items() if one["Type"] == "AWS::IAM::Policy"] == []
    rights = {statement.get("Sid") for name, statement in _statements(template) if name == "FunctionRole"}

    assert {"NetworkInterfaces", "Secrets"} <= rights


def test_spark_on_fargate_runs_what_the_local_one_does(template: dict[str, Any]) -> None:
    [container] = template["Resources"]["SparkTask"]["Properties"]["ContainerDefinitions"]
    packages = container["Command"][container["Command"].index("--packages") + 1].split(",")

    for artifact in (ICEBERG, AWS, HADOOP_AWS):
        assert f"{artifact.group}:{artifact.name}:{artifact.version}" in packages


def test_nessie_on_fargate_is_set_up_as_the_one_that_was_tried(template: dict[str, Any]) -> None:
    """The compose file's is, with a real Postgres. What leads to that is of each its own."""
    [container] = template["Resources"]["CatalogTask"]["Properties"]["ContainerDefinitions"]
    given = [one["Fn::If"][1] if "Fn::If" in one else one for one in container["Environment"]]
    ours = {one["Name"]: one["Value"] for one in given}
    store = ours.pop("NESSIE_VERSION_STORE_TYPE")
    tried = load(DEPLOY / "compose.yaml")["services"]["nessie"]

    shared = {name: value for name, value in tried["environment"].items() if name in ours and "DATASOURCE_" not in name}
    assert {name: ours[name] for name in shared} == shared
    assert len(shared) >= 3
    assert store == {"Fn::If": ["OnPostgres", tried["environment"]["NESSIE_VERSION_STORE_TYPE"], "DYNAMODB2"]}
    assert template["Parameters"]["CatalogImage"]["Default"] == tried["image"]


@pytest.mark.parametrize("group", ["CatalogGroup", "SparkGroup", "DatabaseGroup"])
def test_servers_let_in_this_stack_s_own_groups_and_no_others(template: dict[str, Any], group: str) -> None:
    rules = template["Resources"][group]["Properties"]["SecurityGroupIngress"]
    allowed = [rule["Fn::If"][1] if "Fn::If" in rule else rule for rule in rules]
    sources = [rule.get("SourceSecurityGroupId") or rule["CidrIp"] for rule in allowed]

    assert len({rule["FromPort"] for rule in allowed} | {rule["ToPort"] for rule in allowed}) == 1
    # CatalogClients: a Spark that is brought has to reach the catalog.
    assert all("Fn::GetAtt" in source or source == {"Ref": "CatalogClients"} for source in sources)
    assert {"Fn::GetAtt": ["FunctionGroup", "GroupId"]} in sources
