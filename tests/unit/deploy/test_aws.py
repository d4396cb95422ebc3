"""The template for AWS: its settings exist, and it opens nothing that it shouldn't."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from lakegate.config import load_settings
from lakegate.loading.routes import Routes
from support.aws_demo import TEMPLATE, template

RESOURCES: Mapping[str, Any] = template()["Resources"]
PARAMETERS: Mapping[str, Any] = template()["Parameters"]


def of_type(kind: str) -> dict[str, Any]:
    return {name: one.get("Properties", {}) for name, one in RESOURCES.items() if one["Type"] == kind}


def branches(value: Any) -> Iterator[Any]:
    """Yield each value that an ``!If`` may give."""
    if isinstance(value, dict) and "Fn::If" in value:
        for one in value["Fn::If"][1:]:
            yield from branches(one)
    elif value != {"Ref": "AWS::NoValue"}:
        yield value


def statements(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for one in document["Statement"]:
        yield from branches(one)


def allowed() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield what roles may do, with the role's or policy's name."""
    for name, policy in of_type("AWS::IAM::ManagedPolicy").items():
        yield from ((name, one) for one in statements(policy["PolicyDocument"]))
    for name, role in of_type("AWS::IAM::Role").items():
        for policy in (one for given in role["Policies"] for one in branches(given)):
            yield from ((name, one) for one in statements(policy["PolicyDocument"]) if one["Effect"] == "Allow")


def test_variables_of_the_function_are_settings(tmp_path: Any) -> None:
    variables = RESOURCES["Function"]["Properties"]["Environment"]["Variables"]
    example = {
        "LAKEGATE_LOG_FORMAT": "json",
        "LAKEGATE_CATALOG_URI": "http://catalog.lakegate.internal:19120/api/v2",
        "LAKEGATE_CATALOG_TOKEN": "aws-secret:nessie",
        "LAKEGATE_CATALOG_WAREHOUSE": "s3://lake/warehouse",
        "LAKEGATE_S3_BUCKET_OWNER": "123456789012",
        "LAKEGATE_ENGINE_URL": "sc://engine.lakegate.internal:15002",
        "LAKEGATE_ENGINE_TOKEN": "aws-secret:spark",
        "LAKEGATE_JOURNAL_URL": "postgresql://journal@db:5432/lakegate",
        "LAKEGATE_JOURNAL_TLS": "true",
        "LAKEGATE_JOURNAL_CA_FILE": "/var/task/rds.pem",
        "LAKEGATE_JOURNAL_PASSWORD": "aws-secret:journal",
        "LAKEGATE_JOURNAL_MAX_CONNECTIONS": variables["LAKEGATE_JOURNAL_MAX_CONNECTIONS"],
        "LAKEGATE_JOURNAL_PARK_S": variables["LAKEGATE_JOURNAL_PARK_S"],
        "LAKEGATE_WATCH_ROUTES": PARAMETERS["Routes"]["Default"],
        "LAKEGATE_NOTIFY_CHANNELS": '[{"name": "slack", "type": "slack", "url": "aws-secret:slack"}]',
    }
    assert set(example) == set(variables)
    settings = load_settings(tmp_path, env=example)
    assert settings.journal.park_s > RESOURCES["Queue"]["Properties"]["VisibilityTimeout"]
    assert settings.notify.channels[0].name == "slack"
    patterns = [f"s3://bucket/{route}" for route in settings.watch.routes or ()]
    landing = PARAMETERS["LandingPrefix"]["Default"]
    assert Routes(patterns).table(f"s3://bucket/{landing}nyc/trips/a.parquet") == "nyc.trips"


def test_buckets_are_encrypted_closed_and_reached_by_tls_alone() -> None:
    policies = {one["Bucket"]["Ref"]: one["PolicyDocument"] for one in of_type("AWS::S3::BucketPolicy").values()}
    buckets = of_type("AWS::S3::Bucket")
    assert set(buckets) == set(policies) == {"Landing", "Lake"}
    for name, bucket in buckets.items():
        assert bucket["BucketEncryption"]
        assert all(bucket["PublicAccessBlockConfiguration"].values())
        (only,) = policies[name]["Statement"]
        assert (only["Effect"], only["Action"], only["Principal"]) == ("Deny", "s3:*", "*")
        assert only["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert all(queue["SqsManagedSseEnabled"] for queue in of_type("AWS::SQS::Queue").values())
    database = RESOURCES["Database"]["Properties"]
    assert (database["StorageEncrypted"], database["PubliclyAccessible"]) == (True, False)


def test_roles_name_what_they_may_touch() -> None:
    for name, statement in allowed():
        actions = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
        assert not [action for action in actions if "*" in action], name
        if statement["Resource"] == "*":  # AWS knows no narrower one
            assert (name, statement["Sid"]) == ("FunctionRole", "NetworkInterfaces")
    deleting = {name for name, one in allowed() if "s3:DeleteObject" in one["Action"]}
    assert deleting == {"SparkRole"}


def test_no_secret_is_a_parameter_or_in_clear() -> None:
    for name, parameter in PARAMETERS.items():
        if re.search("Token|Password|Secret", name):
            assert "secretsmanager" in parameter["AllowedPattern"], name
    text = json.dumps(RESOURCES)
    assert re.findall(r'"MasterUserPassword": \{"Fn::Sub": "(.*?)"', text) == [
        "{{resolve:secretsmanager:${DatabasePassword}}}"
    ]


def test_groups_let_in_each_other_alone() -> None:
    for name, group in of_type("AWS::EC2::SecurityGroup").items():
        rules = [rule for given in group.get("SecurityGroupIngress", ()) for rule in branches(given)]
        assert all("SourceSecurityGroupId" in rule and rule["FromPort"] == rule["ToPort"] for rule in rules), name


def test_the_image_is_built_of_what_is_there() -> None:
    metadata = RESOURCES["Function"]["Metadata"]
    context = (TEMPLATE.parent / metadata["DockerContext"]).resolve()
    lines = (context / metadata["Dockerfile"]).read_text(encoding="utf-8").splitlines()
    copied = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    missing = [path for path in copied if "[" not in path and not (context / path).exists()]
    assert not missing
    assert 'CMD ["lakegate.integrations.aws_lambda.handler"]' in lines
