"""The template on MiniStack: planned, deployed, left alone, changed, looked at and deleted, with nothing left over.

MiniStack makes S3, SQS, Lambda, IAM, Secrets Manager, DynamoDB and their like; of ECS, RDS and Cloud Map it keeps
records and starts no server. It asks no permission of roles and policies (but the queue's), does not know NAT gateways,
so the network is brought, and lists resources in a plan whose condition does not hold. These are not tested here.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import boto3
import pytest
from click.testing import CliRunner, Result

from lakegate.cli.main import cli
from lakegate.integrations.aws.clients import Clients, DeploymentError, open_clients
from lakegate.integrations.aws.deployment import Deployment
from lakegate.integrations.aws.inspection import NAMESPACE as CANARY_NAMESPACE
from lakegate.integrations.aws.package import FunctionPackage
from lakegate.integrations.aws_lambda.events import EventMessage
from lakegate.integrations.aws_lambda.work import deliver_again
from lakegate.local.ministack import in_environment
from lakegate.progress import SilentNarrator
from support.deploy_files import DEPLOY
from support.ministack import ministack
from support.waiting import wait_until

pytestmark = pytest.mark.system

BROUGHT = {
    "CatalogUri": "http://127.0.0.1:19120/api/v2",
    "SparkUrl": "sc://127.0.0.1:15002",
    "JournalUrl": "postgresql://lake@127.0.0.1:5432/lake",
}
HANDLER = """
import os
import boto3

def handler(event, context):
    # Tells what it was called with, for the test to read; of a canary, whether its notification came.
    if "lakegate canary" in event:
        key = event["lakegate canary"].split("/", 3)[3]
        if "Routes" in os.environ["LAKEGATE_WATCH_ROUTES"]:
            return {"outcome": "no route"}
        bucket = event["lakegate canary"].split("/")[2]
        seen = boto3.client("s3").list_objects_v2(Bucket=bucket, Prefix="seen/").get("Contents", [])
        bodies = [boto3.client("s3").get_object(Bucket=bucket, Key=one["Key"])["Body"].read() for one in seen]
        done = any(key.encode() in body for body in bodies)
        waiting = {"outcome": "waiting", "reason": "Spark doesn't answer."}
        return {"outcome": "done", "run_id": "r1"} if done else waiting
    bucket = os.environ["LAKEGATE_CATALOG_WAREHOUSE"].removeprefix("s3://").partition("/")[0]
    for record in event["Records"]:
        key = "seen/" + record["messageId"]
        boto3.client("s3").put_object(Bucket=bucket, Key=key, Body=record["body"].encode())
    return {"batchItemFailures": []}
"""
_PATIENCE_S = 60.0
_NAMED_BY_HAND = "named-by-hand"
"""A bucket that the policy doesn't name, as the documentation says."""


@pytest.fixture(scope="module")
def aws() -> Iterator[None]:
    """This process's AWS, while the module's tests run; nothing is asked of it that the deployer's policy lacks."""
    made, called = vars(Clients)["_client"], set[tuple[str, str]]()

    def note(event_name: str, params: dict[str, Any], **_: Any) -> None:
        operation = event_name.removeprefix("provide-client-params.")
        called.update((right, _resource(operation, params)) for right in _permissions(operation))

    def watched(self: Clients, service: str) -> Any:
        client = made(self, service)
        client.meta.events.register("provide-client-params", note)
        return client

    with pytest.MonkeyPatch.context() as patch, ministack() as server, in_environment(server.environment):
        patch.setattr(Clients, "_client", watched)
        yield
    assert {one for one in called if not _is_allowed(*one) and _NAMED_BY_HAND not in one[1]} == set()


def _is_allowed(right: str, resource: str) -> bool:
    policy = json.loads((DEPLOY / "aws" / "deployer-policy.json").read_text(encoding="utf-8"))
    allowed = (one["Resource"] for one in policy["Statement"] if right in one["Action"])
    patterns = [one for given in allowed for one in ([given] if isinstance(given, str) else given)]
    return any(fnmatchcase(resource, pattern) for pattern in patterns)


_ARNS = (
    ("s3.DeleteObjects", "Bucket", "arn:aws:s3:::{}/any"),
    ("cloudformation", "ChangeSetName", "{}"),
    ("cloudformation", "StackName", "arn:aws:cloudformation:r:a:stack/{}/id"),
    ("lambda", "FunctionName", "arn:aws:lambda:r:a:function:{}"),
    ("cloudwatch-logs", "logGroupName", "arn:aws:logs:r:a:log-group:{}"),
    ("sqs", "QueueUrl", "arn:aws:sqs:r:a:{}"),
    ("dynamodb", "TableName", "arn:aws:dynamodb:r:a:table/{}"),
    ("rds", "DBSnapshotIdentifier", "arn:aws:rds:r:a:snapshot:{}"),
    ("ecr", "repositoryName", "arn:aws:ecr:r:a:repository/{}"),
    ("iam", "AWSServiceName", "arn:aws:iam::a:role/aws-service-role/{}/any"),
    ("ecs", "cluster", "arn:aws:ecs:r:a:service/{}/any"),
)
"""For operations that begin so and have this parameter, the ARN that AWS asks a permission for."""


def _resource(operation: str, params: Mapping[str, Any]) -> str:
    """Return the ARN that AWS asks a permission for; "?" where there is none, which only "*" allows."""
    if operation.startswith("s3.") and "Key" in params:
        return f"arn:aws:s3:::{params['Bucket']}/{params['Key']}"
    for beginning, name, arn in (*_ARNS, ("s3", "Bucket", "arn:aws:s3:::{}")):
        value = params.get(name, "").removeprefix("/aws/cloudformation/")  # where MiniStack puts groups of logs
        if operation.startswith(beginning) and value and not (name == "ChangeSetName" and ":" not in value):
            return (
                value if value.startswith("arn:") else arn.format(value.rpartition("/")[2] if "//" in value else value)
            )
    for name in params.get("repositoryNames", ()):
        return f"arn:aws:ecr:r:a:repository/{name}"
    return "?"


def _permissions(operation: str) -> list[str]:
    """Return the permissions that AWS asks for an operation of its library."""
    service, _, name = operation.partition(".")
    prefix = {"resource-groups-tagging-api": "tag", "cloudwatch-logs": "logs"}.get(service, service)
    special = {
        "s3.HeadObject": ["s3:GetObject"],
        "s3.ListObjectVersions": ["s3:ListBucketVersions"],
        "s3.DeleteObjects": ["s3:DeleteObject", "s3:DeleteObjectVersion"],
        "s3.PutPublicAccessBlock": ["s3:PutBucketPublicAccessBlock"],
        "s3.CreateMultipartUpload": ["s3:PutObject"],
        "s3.UploadPart": ["s3:PutObject"],
        "s3.CompleteMultipartUpload": ["s3:PutObject"],
        "lambda.Invoke": ["lambda:InvokeFunction"],
        "sts.GetCallerIdentity": [],  # allowed to everybody
    }
    return special.get(operation, [f"{prefix}:{name}"])


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A function that stands in for ours, which takes a Spark and minutes to build."""
    path = tmp_path / "function.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("lakegate/__init__.py", "")
        archive.writestr("lakegate/integrations/__init__.py", "")
        archive.writestr("lakegate/integrations/aws_lambda.py", HANDLER)
    return path


@pytest.fixture
def demo(aws: None) -> Iterator[Deployment]:
    deployment = Deployment("demo", open_clients(), SilentNarrator(), poll_s=0.1)
    yield deployment
    try:
        deployment.destroy(deployment.survey())
    finally:
        _delete_buckets()


def _delete_buckets() -> None:
    """Delete what a test left behind, so that it fails alone."""
    s3: Any = boto3.resource("s3")
    for bucket in s3.buckets.all():
        bucket.object_versions.delete()
        bucket.delete()


def _names() -> dict[str, list[str]]:
    """Return all that is there of what a deployment is made of."""
    client: Any = boto3.client
    return {
        "buckets": [one["Name"] for one in client("s3").list_buckets()["Buckets"]],
        "queues": client("sqs").list_queues().get("QueueUrls", []),
        "functions": [one["FunctionName"] for one in client("lambda").list_functions()["Functions"]],
        "mappings": client("lambda").list_event_source_mappings()["EventSourceMappings"],
        "roles": [one["RoleName"] for one in client("iam").list_roles()["Roles"]],
        "secrets": [one["Name"] for one in client("secretsmanager").list_secrets()["SecretList"]],
        "tables": client("dynamodb").list_tables()["TableNames"],
        "databases": [one["DBInstanceIdentifier"] for one in client("rds").describe_db_instances()["DBInstances"]],
        "snapshots": client("rds").describe_db_snapshots()["DBSnapshots"],
        "clusters": client("ecs").list_clusters()["clusterArns"],
        "groups": [one["logGroupName"] for one in client("logs").describe_log_groups()["logGroups"]],
        "alarms": client("cloudwatch").describe_alarms()["MetricAlarms"],
        "rules": client("events").list_rules()["Rules"],
    }


def test_from_plan_to_nothing(aws: None, package: Path) -> None:
    before = _names()
    demo = Deployment("demo", open_clients(), SilentNarrator(), poll_s=0.1)

    planned = demo.plan(BROUGHT, package)
    assert planned.is_new
    assert {"Bucket", "Queue", "Function"} <= {change.resource for change in planned.changes}
    assert _names() == before  # planning made nothing

    assert demo.deploy(BROUGHT, package, approve=lambda _: False).declined
    assert _names() == before  # and declining left nothing

    first = demo.deploy(BROUGHT, package)
    assert first.changed
    assert first.outputs["Landing"] == f"s3://{first.outputs['Bucket']}/landing/"

    again = demo.deploy({}, package)  # and what was given before stays
    assert (again.changed, again.outputs) == (False, first.outputs)

    later = demo.plan({"MaxReceiveCount": "3"}, package)
    assert ("modify", "Queue") in [(change.action, change.resource) for change in later.changes]
    assert not later.is_new

    status = demo.status(drift=True)
    assert (status.state, status.dead, status.drifted) == ("CREATE_COMPLETE", 0, ())
    assert status.function is not None
    assert status.parameters["CatalogUri"] == BROUGHT["CatalogUri"]

    demo.destroy(demo.survey())
    assert demo.survey().is_empty
    # MiniStack makes a group of logs anew for a call that ends after it was deleted. AWS asks for a right, which lacks.
    assert {**_names(), "groups": []} == before
    demo.destroy(demo.survey())  # again: nothing to do
    with pytest.raises(DeploymentError, match="There is no stack lakegate-demo"):
        demo.status()


def test_with_all_brought_only_bucket_queues_and_function_are_made(demo: Deployment, package: Path) -> None:
    outputs = demo.deploy(BROUGHT, package).outputs

    kinds = {one.type for one in demo.survey().resources}

    assert kinds == {
        *("AWS::S3::Bucket", "AWS::S3::BucketPolicy", "AWS::SQS::Queue", "AWS::SQS::QueuePolicy"),
        *("AWS::Lambda::Function", "AWS::Lambda::EventSourceMapping", "AWS::IAM::Role", "AWS::Logs::LogGroup"),
        *("AWS::CloudWatch::Alarm", "AWS::Events::Rule", "AWS::Lambda::Permission"),
    }
    is_encrypted_versioned_and_closed(outputs["Bucket"])
    is_called_by_a_schedule_of_its_own_and_nothing_else(outputs["FunctionName"])


def is_encrypted_versioned_and_closed(bucket: str) -> None:
    s3 = boto3.client("s3")
    encryption = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
    assert encryption[0]["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    assert s3.get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"
    assert all(s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"].values())
    policy = json.loads(s3.get_bucket_policy(Bucket=bucket)["Policy"])
    assert policy["Statement"][0]["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def is_called_by_a_schedule_of_its_own_and_nothing_else(name: str) -> None:
    events: Any = boto3.client("events")
    [rule] = events.list_rules()["Rules"]
    assert (rule["ScheduleExpression"], rule["State"]) == ("rate(5 minutes)", "ENABLED")
    [target] = events.list_targets_by_rule(Rule=rule["Name"])["Targets"]
    assert json.loads(target["Input"]) == {"lakegate": "notify late"}
    [allowed] = json.loads(boto3.client("lambda").get_policy(FunctionName=name)["Policy"])["Statement"]
    assert allowed["Principal"] == {"Service": "events.amazonaws.com"}
    assert allowed["Condition"]["ArnLike"]["AWS:SourceArn"] == rule["Arn"]


def test_a_file_that_lands_calls_the_function_and_smoke_takes_its_own_away(demo: Deployment, package: Path) -> None:
    outputs = demo.deploy({**BROUGHT, "BatchWindow": "1"}, package).outputs
    bucket = outputs["Bucket"]
    s3 = boto3.client("s3")

    s3.put_object(Bucket=bucket, Key="landing/nyc/trips/a b.parquet", Body=b"PAR1")
    s3.put_object(Bucket=bucket, Key="elsewhere/b.parquet", Body=b"PAR1")

    def told() -> list[str]:
        found = s3.list_objects_v2(Bucket=bucket, Prefix="seen/").get("Contents", [])
        bodies = [json.loads(s3.get_object(Bucket=bucket, Key=one["Key"])["Body"].read()) for one in found]
        return [record["s3"]["object"]["key"] for body in bodies for record in body.get("Records", ())]

    assert wait_until(told, within_s=_PATIENCE_S, poll_s=0.2) == ["landing/nyc/trips/a+b.parquet"]

    found = demo.smoke(outputs, timeout_s=_PATIENCE_S)

    assert found.table.startswith(f"{CANARY_NAMESPACE}.canary_")
    assert found.run_id == "r1"
    versions = s3.list_object_versions(Bucket=bucket, Prefix="landing/")
    assert [one["Key"] for one in versions["Versions"]] == ["landing/nyc/trips/a b.parquet"]
    assert versions.get("DeleteMarkers", []) == []


def test_smoke_says_what_to_look_at_when_nothing_comes_through(demo: Deployment, package: Path) -> None:
    outputs = demo.deploy({**BROUGHT, "BatchWindow": "300"}, package).outputs

    with pytest.raises(
        DeploymentError, match=r"not published within 0 s: Spark doesn't answer; .* notifications are waiting"
    ) as caught:
        # The emulator doesn't wait for the window to end: given a second, the file may come through.
        demo.smoke(outputs, timeout_s=0)

    assert outputs["LogGroup"] in str(caught.value.hint)
    versions = boto3.client("s3").list_object_versions(Bucket=outputs["Bucket"], Prefix="landing/")
    assert versions.get("Versions", []) == []
    with pytest.raises(DeploymentError, match="No route maps"):
        routed = {"Routes": '["Routes/{table}/* => raw.{table}"]'}
        demo.smoke(demo.deploy(routed, package).outputs, timeout_s=1)


def test_a_message_comes_again_when_the_function_asks_for_it(aws: None) -> None:
    sqs = boto3.client("sqs")
    url = sqs.create_queue(QueueName="patient", Attributes={"VisibilityTimeout": "2100"})["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sqs.send_message(QueueUrl=url, MessageBody="{}")
    [first] = sqs.receive_message(QueueUrl=url)["Messages"]
    assert "Messages" not in sqs.receive_message(QueueUrl=url)

    deliver_again([(EventMessage((), queue=arn, receipt=first["ReceiptHandle"]), 0)])

    [again] = sqs.receive_message(QueueUrl=url)["Messages"]
    assert again["MessageId"] == first["MessageId"]
    sqs.delete_queue(QueueUrl=url)


def test_what_others_deleted_is_named_and_the_rest_shown(demo: Deployment, package: Path) -> None:
    outputs = demo.deploy(BROUGHT, package).outputs
    assert demo.status().missing == ()
    boto3.client("sqs").delete_queue(QueueUrl=outputs["QueueUrl"])
    boto3.client("lambda").delete_function(FunctionName=outputs["FunctionName"])
    boto3.client("logs").delete_log_group(logGroupName=outputs["LogGroup"])

    found = demo.status()

    assert (found.waiting, found.function, found.dead, found.errors) == (None, None, 0, ())
    assert found.missing == (outputs["QueueUrl"], outputs["FunctionName"])
    shown = _run("status", "--name", "demo")
    assert (shown.exit_code, outputs["FunctionName"] in shown.stdout.partition("missing")[2]) == (0, True)


@pytest.mark.parametrize("store", ["postgres", "dynamodb"])
def test_with_nothing_brought_but_a_network(demo: Deployment, package: Path, store: str) -> None:
    ec2 = boto3.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.1.{number}.0/24")["Subnet"]["SubnetId"] for number in range(2)
    ]

    done = demo.deploy({"VpcId": vpc, "SubnetIds": ",".join(subnets), "CatalogStore": store}, package)

    assert done.outputs["CatalogUri"] == "http://catalog.lakegate-demo.internal:19120/api/v2"
    found = demo.survey()
    assert bool(found.tables) is (store == "dynamodb")
    assert len(found.databases) == 1  # the journal's, in any case
    assert found.has_data
    name = done.outputs["FunctionName"]
    variables = boto3.client("lambda").get_function_configuration(FunctionName=name)["Environment"]["Variables"]
    assert variables["LAKEGATE_JOURNAL_PASSWORD"].startswith("aws-secret:")
    assert {"function", "network", "secrets"} == _rights(name).keys()
    # The servers that are made speak no TLS, so nothing secret is sent to them; who reaches them is what counts.
    assert not {"LAKEGATE_ENGINE_TOKEN", "LAKEGATE_CATALOG_TOKEN"} & variables.keys()


def test_all_is_made_and_the_network_has_no_nat_gateway(demo: Deployment, package: Path) -> None:
    demo.deploy({"Egress": "endpoints"}, package)

    kinds = [one.type for one in demo.survey().resources]
    assert not {"AWS::EC2::NatGateway", "AWS::EC2::EIP"} & set(kinds)
    assert kinds.count("AWS::EC2::VPCEndpoint") == 3
    ecs: Any = boto3.client("ecs")
    [cluster] = ecs.list_clusters()["clusterArns"]
    services = ecs.describe_services(cluster=cluster, services=ecs.list_services(cluster=cluster)["serviceArns"])
    networks = [one["networkConfiguration"]["awsvpcConfiguration"] for one in services["services"]]
    assert [(one["assignPublicIp"], len(one["subnets"])) for one in networks] == [("ENABLED", 1)] * 2
    roles = [one["RoleName"].lower() for one in boto3.client("iam").list_roles()["Roles"]]
    assert "awsserviceroleforecs" in roles


def test_the_function_may_read_the_secrets_it_is_given_and_no_others(demo: Deployment, package: Path) -> None:
    arns = [f"arn:aws:secretsmanager:us-east-1:000000000000:secret:{name}-a1b2c3" for name in ("bot", "pager")]

    name = demo.deploy({**BROUGHT, "SecretArns": ",".join(arns)}, package).outputs["FunctionName"]

    found = _rights(name)
    assert found.keys() == {"function", "secrets-of-settings"}
    [allowed] = found["secrets-of-settings"]
    assert (allowed["Action"], allowed["Resource"]) == ("secretsmanager:GetSecretValue", arns)
    with pytest.raises(DeploymentError, match="SecretArns"):
        demo.plan({"SecretArns": arns[0].removesuffix("-a1b2c3")}, package)


def _rights(function: str) -> dict[str, list[dict[str, Any]]]:
    """Return the statements of a function's role, by policy."""
    role = boto3.client("lambda").get_function_configuration(FunctionName=function)["Role"].rpartition("/")[2]
    iam: Any = boto3.client("iam")
    names = iam.list_role_policies(RoleName=role)["PolicyNames"]
    return {name: iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]["Statement"] for name in names}


@pytest.mark.parametrize("given", [{}, {"BucketName": _NAMED_BY_HAND}], ids=["usual", "named"])
def test_data_is_kept_when_asked_and_found_later(demo: Deployment, package: Path, given: dict[str, str]) -> None:
    bucket = demo.deploy({**BROUGHT, **given}, package).outputs["Bucket"]
    s3 = boto3.client("s3")
    for body in (b"1", b"22"):
        s3.put_object(Bucket=bucket, Key="warehouse/a", Body=body)
    s3.delete_object(Bucket=bucket, Key="warehouse/a")
    found = demo.survey()
    assert [(one.objects, one.size_bytes) for one in found.data] == [(3, 3)]  # two versions and a mark of deletion

    demo.destroy(found, keep_data=True)

    assert [one["Name"] for one in s3.list_buckets()["Buckets"]] == [bucket]
    later = demo.survey()
    assert ([one.name for one in later.data], later.has_data) == ([bucket], True)
    demo.destroy(later)
    assert s3.list_buckets()["Buckets"] == []


def test_a_first_deployment_that_fails_leaves_no_stack(demo: Deployment, package: Path) -> None:
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket="taken-by-another")

    with pytest.raises(DeploymentError, match="failed at Bucket"):
        demo.deploy({**BROUGHT, "BucketName": "taken-by-another"}, package)

    assert demo.survey().state is None
    s3.delete_bucket(Bucket="taken-by-another")


def test_a_change_that_parts_from_data_is_asked_about_once_more(
    demo: Deployment, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo.deploy(BROUGHT, package)
    asked = []

    def answer(question: str, *, yes: bool) -> bool:
        asked.append(question)
        return yes or "data" not in question

    monkeypatch.setattr("lakegate.integrations.aws.package.build_package", lambda *_: package)
    monkeypatch.setattr("lakegate.cli.commands.aws.confirm", answer)

    refused = _run("deploy", "--name", "demo", "--bucket-name", "another", "-o", "json")

    assert asked == ["Make these changes?", "Continue without that data?"]
    assert "DATA: Bucket is kept with its data, but no longer used" in refused.stderr
    assert json.loads(refused.stdout)["changed"] is False
    _run("deploy", "--name", "demo", "--batch-size", "20", "-o", "json")
    assert asked[2:] == ["Make these changes?"]


def test_checks_stay_in_the_function_until_others_are_given(
    demo: Deployment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A file must not be published unaudited because somebody deployed from another folder."""
    monkeypatch.chdir(tmp_path)
    given = [word for name, value in BROUGHT.items() for word in (_option(name), value)]
    checks, none = tmp_path / "lakegate.toml", tmp_path / "empty.toml"
    checks.write_text('[tables."nyc.trips"]\nchecks = ["not_null(id)"]\n', encoding="utf-8")
    none.write_text("", encoding="utf-8")
    packed: list[str | None] = []

    def build(folder: Path, wanted: FunctionPackage) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        packed.append(None if wanted.settings is None else wanted.settings.read_text(encoding="utf-8"))
        path = folder / f"{len(packed)}.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("version", str(len(packed)))
            if packed[-1] is not None:
                archive.writestr("lakegate.toml", packed[-1])
        return path

    monkeypatch.setattr("lakegate.integrations.aws.package.build_package", build)
    for words in ([], ["--settings", str(checks)], [], ["--settings", str(none)], []):
        _run("deploy", "--name", "demo", *given, "--yes", *words)

    assert packed == [None, checks.read_text(), checks.read_text(), "", None]


def _run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["aws", *words], catch_exceptions=False)


def test_the_commands(aws: None, package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakegate.integrations.aws.package.build_package", lambda *_: package)
    given = [word for name, value in BROUGHT.items() for word in (_option(name), value)]

    planned = _run("plan", "--name", "demo", *given)
    assert "create" in planned.stdout
    assert "lakegate aws deploy --name demo" in planned.stdout
    assert "When idle: about 1 USD a month" in planned.stdout
    assert "us-east-1, on demand" in planned.stdout
    deployed = _run("deploy", "--name", "demo", *given, "--yes", "-o", "json")
    assert json.loads(deployed.stdout)["changed"] is True
    assert "create  Bucket" in deployed.stderr
    assert "No --alarm-email: no one is alerted" in deployed.stderr
    assert "nothing had to change" in _run("deploy", "--name", "demo", "--yes").stdout
    assert "CREATE_COMPLETE" in _run("status", "--name", "demo").stdout
    nobody = _run("destroy", "--name", "demo")
    assert (nobody.exit_code, "Pass --yes" in nobody.stderr) == (2, True)
    assert json.loads(_run("destroy", "--name", "demo", "--yes", "-o", "json").stdout)["deleted"] is True
    assert "nothing to delete" in _run("destroy", "--name", "demo", "--yes").stdout


def _option(name: str) -> str:
    from lakegate.integrations.aws.parameters import PARAMETERS

    return next(one.option for one in PARAMETERS if one.name == name)
