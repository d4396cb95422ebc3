"""Planning, creating, changing and deleting a deployment, with stubbed responses that boto3 validates."""

from __future__ import annotations

import json
import zipfile
from base64 import b64encode
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from lakegate.errors import ConfigurationError, InputError, LakegateError, RetryableError
from lakegate.integrations.aws.clients import Clients, DeploymentError, DeploymentName, open_clients
from lakegate.integrations.aws.data import Data
from lakegate.integrations.aws.deployment import Deployment, database_authority
from lakegate.integrations.aws.inspection import last_put_off, server_status
from lakegate.integrations.aws.parameters import (
    BucketContent,
    DeploymentInventory,
    DeploymentPlan,
    LoggedError,
    ResourceChange,
)
from lakegate.integrations.aws.stack import ChangeSet, Stack
from lakegate.progress import SilentNarrator

FORMATION = "cloudformation"
TAGGING = "resourcegroupstaggingapi"
ACCOUNT = "123456789012"
STACK = "lakegate-demo"
STACK_ID = f"arn:aws:cloudformation:eu-central-1:{ACCOUNT}:stack/{STACK}/11111111-2222"
CHANGES = f"arn:aws:cloudformation:eu-central-1:{ACCOUNT}:changeSet/lakegate-x/33333333-4444"
BUCKET = f"{STACK}-{ACCOUNT}-eu-central-1"
CODE = f"{STACK}-fn-{ACCOUNT}-eu-central-1-an"
CONTENT = BucketContent(name=BUCKET, objects=1, size_bytes=3)
FUNCTION = f"{STACK}-Function-1"
OUTPUTS = {"Bucket": BUCKET, "FunctionName": FUNCTION}
CRASHED = {"name": "spark", "exitCode": 137, "reason": "OutOfMemoryError"}
START = datetime(2026, 1, 31, 7, 5, 9, tzinfo=UTC)
QUEUE_CHANGE = {
    "Type": "Resource",
    "ResourceChange": {
        "Action": "Modify",
        "LogicalResourceId": "Queue",
        "ResourceType": "AWS::SQS::Queue",
        "Replacement": "False",
        "Details": [{"Target": {"Attribute": "Properties", "Name": "VisibilityTimeout"}}],
    },
}


class Stubs(dict[str, Stubber]):
    """The services, each made when it is first asked for: making all of them takes longer than most tests."""

    def __init__(self, session: boto3.Session) -> None:
        super().__init__()
        self._make: Any = session.client  # typed by the names of all services

    def __missing__(self, service: str) -> Stubber:
        made = self[service] = Stubber(self._make(service))
        made.activate()
        return made


class Aws:
    """Responses of each service, in the order of its requests."""

    def __init__(self, region: str = "eu-central-1") -> None:
        self.session = boto3.Session("AKIDEXAMPLE", "no-secret", region_name=region)
        self.stubs = Stubs(self.session)

    def client(self, service: str, **_: Any) -> Any:
        return self.stubs[service].client

    def answers(self, method: str, answer: Mapping[str, Any], expected: Any = None, service: str = FORMATION) -> None:
        if service == "s3" and expected is not None and method != "create_bucket":
            expected = {**expected, "ExpectedBucketOwner": ACCOUNT}  # on each request about a bucket
        self.stubs[service].add_response(method, dict(answer), expected)

    def refuses(self, method: str, code: str, text: str = "", status: int = 400, service: str = FORMATION) -> None:
        self.stubs[service].add_client_error(method, code, text, status)

    def has_no_stack(self) -> None:
        self.refuses("describe_stacks", "ValidationError", f"Stack with id {STACK} does not exist")

    def has_no_repositories(self) -> None:
        for name in ("spark", "function"):
            self.refuses("describe_repositories", "RepositoryNotFoundException", name, 400, "ecr")

    def has_function(self, package: bytes) -> None:
        digest = b64encode(sha256(package).digest()).decode()
        answer = {"CodeSha256": digest, "LastModified": START.isoformat()}
        self.answers("get_function_configuration", answer, {"FunctionName": FUNCTION}, "lambda")

    def has_stack(self, status: str, parameters: Mapping[str, str] | None = None, reason: str = "") -> None:
        given = [{"ParameterKey": key, "ParameterValue": value} for key, value in (parameters or {}).items()]
        stack = {
            "StackId": STACK_ID,
            "StackName": STACK,
            "CreationTime": START,
            "StackStatus": status,
            "StackStatusReason": reason,
            "Parameters": given,
            "Outputs": [{"OutputKey": name, "OutputValue": value} for name, value in OUTPUTS.items()],
        }
        self.answers("describe_stacks", {"Stacks": [stack]})

    def prepares(self, expected: Any = None, changes: tuple[Any, ...] = (QUEUE_CHANGE,)) -> None:
        self.answers("create_change_set", {"Id": CHANGES, "StackId": STACK_ID}, expected)
        self.answers("describe_change_set", {"Status": "CREATE_COMPLETE"})
        self.answers("describe_change_set", {"Status": "CREATE_COMPLETE", "Changes": list(changes)})

    def has_events(self, *events: tuple[str, str, str]) -> None:
        """Add events (resource, status, reason), newest first like AWS."""
        found = [
            {
                "StackId": STACK_ID,
                "EventId": f"{name}-{status}",
                "StackName": STACK,
                "LogicalResourceId": name,
                "ResourceType": "AWS::CloudFormation::Stack" if name == STACK else "AWS::SQS::Queue",
                "Timestamp": START + timedelta(seconds=number),
                "ResourceStatus": status,
                "ResourceStatusReason": reason,
            }
            for number, (name, status, reason) in enumerate(events)
        ]
        self.answers("describe_stack_events", {"StackEvents": found[::-1]})

    def has_code(self) -> None:
        tags = {"TagSet": [{"Key": "lakegate:stack", "Value": STACK}]}
        self.answers("get_bucket_tagging", tags, {"Bucket": CODE}, "s3")
        self.answers("head_object", {"ContentLength": 1}, None, "s3")


class Notes(SilentNarrator):
    """Records what it gets."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def aws() -> Iterator[Aws]:
    made = Aws()
    made.answers("get_caller_identity", {"Account": ACCOUNT}, None, "sts")
    yield made
    for service in made.stubs.keys() & {"cloudformation", "s3", "lambda", "ecs", TAGGING}:
        made.stubs[service].assert_no_pending_responses()


@pytest.fixture
def demo(aws: Aws) -> Deployment:
    return Deployment("demo", Clients(aws), SilentNarrator(), poll_s=0)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    path = tmp_path / "function.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("lakegate/__init__.py", "")
    return path


EXECUTED = {"ChangeSetName": CHANGES, "ClientRequestToken": ANY}
"""With a token, AWS knows a request that is repeated because its answer was lost."""


def _create(parameters: Any, kind: str) -> dict[str, Any]:
    failure = {"OnStackFailure": "DELETE"} if kind == "CREATE" else {}
    return {
        "StackName": STACK,
        "ChangeSetName": ANY,
        "ClientToken": ANY,
        "ChangeSetType": kind,
        "TemplateBody": ANY,
        "Parameters": parameters,
        "Capabilities": ["CAPABILITY_IAM"],
        "Tags": [{"Key": "lakegate:stack", "Value": STACK}],
        **failure,
    }


def test_a_plan_leaves_nothing_behind(aws: Aws, demo: Deployment, package: Path) -> None:
    aws.has_no_stack()
    aws.prepares()
    aws.answers("delete_change_set", {}, {"ChangeSetName": CHANGES})
    aws.has_stack("REVIEW_IN_PROGRESS")
    aws.answers("delete_stack", {}, {"StackName": STACK_ID})

    planned = demo.plan({}, package)

    properties = ("VisibilityTimeout",)
    change = ResourceChange(
        action="modify", resource="Queue", type="AWS::SQS::Queue", replacement="false", properties=properties
    )
    assert (planned.stack, planned.is_new, planned.changes) == (STACK, True, (change,))
    assert planned.costs is not None
    assert planned.costs.total_usd > 100
    [warning] = planned.warnings
    assert "no one is alerted" in warning


def test_the_alarm_email_is_kept(aws: Aws, demo: Deployment, package: Path) -> None:
    aws.has_stack("CREATE_COMPLETE", {"AlarmEmail": "ops@example.com"})
    aws.prepares()
    aws.answers("delete_change_set", {}, {"ChangeSetName": CHANGES})

    assert demo.plan({}, package).warnings == ()


@pytest.mark.parametrize(
    ("code", "told"),
    [(None, False), ("InvalidInput", False), ("AccessDenied", True)],
    ids=["made", "there already", "not allowed"],
)
def test_the_ecs_role_exists_before_the_first_service(aws: Aws, package: Path, code: str | None, *, told: bool) -> None:
    narrator = Notes()
    demo = Deployment("demo", Clients(aws), narrator, poll_s=0)
    aws.has_code()
    aws.has_no_stack()
    service = {"Action": "Add", "LogicalResourceId": "SparkService", "ResourceType": "AWS::ECS::Service"}
    aws.prepares(changes=({"Type": "Resource", "ResourceChange": service},))
    asked = {"AWSServiceName": "ecs.amazonaws.com"}
    if code is None:
        aws.answers("create_service_linked_role", {}, asked, "iam")
    else:
        aws.stubs["iam"].add_client_error("create_service_linked_role", code, "", 400, expected_params=asked)
    aws.has_events((STACK, "REVIEW_IN_PROGRESS", ""))
    aws.answers("execute_change_set", {}, EXECUTED)
    aws.has_stack("CREATE_COMPLETE")
    aws.has_events((STACK, "REVIEW_IN_PROGRESS", ""))
    aws.has_function(package.read_bytes())

    assert demo.deploy({}, package).changed
    aws.stubs["iam"].assert_no_pending_responses()
    assert any("aws iam create-service-linked-role" in note for note in narrator.notes) is told


def test_omitted_parameters_keep_their_values(aws: Aws, demo: Deployment, package: Path) -> None:
    before = {"BatchSize": "7", "LogDays": "90", "CodeKey": "old", "CodeBucket": "code", "OfAnEarlierVersion": "1"}
    aws.has_stack("UPDATE_COMPLETE", before)
    parameters: list[dict[str, Any]] = [
        {"ParameterKey": "BatchSize", "ParameterValue": "10"},
        {"ParameterKey": "CodeBucket", "ParameterValue": CODE},
        {"ParameterKey": "CodeKey", "ParameterValue": f"function/{sha256(package.read_bytes()).hexdigest()}.zip"},
        {"ParameterKey": "DatabaseAuthority", "ParameterValue": database_authority("eu-central-1")},
        {"ParameterKey": "ImageUri", "ParameterValue": ""},
        {"ParameterKey": "LogDays", "UsePreviousValue": True},
    ]
    aws.prepares(_create(parameters, "UPDATE"))
    aws.answers("delete_change_set", {}, {"ChangeSetName": CHANGES})

    assert not demo.plan({"BatchSize": "10"}, package).is_new


@pytest.mark.parametrize(
    "reason",
    [
        "The submitted information didn't contain changes. Submit different information to create a change set.",
        "No updates are to be performed.",
    ],
)
def test_deploying_again_changes_nothing(aws: Aws, demo: Deployment, package: Path, reason: str) -> None:
    aws.has_stack("CREATE_COMPLETE")
    aws.answers("create_change_set", {"Id": CHANGES, "StackId": STACK_ID})
    aws.answers("describe_change_set", {"Status": "FAILED", "StatusReason": reason})
    aws.answers("delete_change_set", {})
    aws.has_stack("CREATE_COMPLETE")
    aws.has_function(package.read_bytes())

    done = demo.deploy({}, package)

    assert (done.changed, done.outputs) == (False, OUTPUTS)


def test_deployed_parameters_count_in_validation(aws: Aws, demo: Deployment, package: Path) -> None:
    aws.has_stack("CREATE_COMPLETE", {"ReservedConcurrency": "5"})

    with pytest.raises(InputError, match="--reserved-concurrency 5 is below --maximum-concurrency 10"):
        demo.plan({"MaximumConcurrency": "10", "SparkSize": "medium"}, package)


def test_a_deployment_follows_the_stack_to_its_end(aws: Aws, demo: Deployment, package: Path) -> None:
    aws.has_code()
    aws.has_stack("CREATE_COMPLETE")
    aws.prepares()
    aws.has_events((STACK, "CREATE_COMPLETE", ""))
    aws.answers("execute_change_set", {}, EXECUTED)
    begun = ((STACK, "CREATE_COMPLETE", ""), ("Queue", "UPDATE_IN_PROGRESS", ""))
    aws.has_stack("UPDATE_IN_PROGRESS")
    aws.has_events(*begun)
    aws.has_stack("UPDATE_COMPLETE")
    aws.has_events(*begun, ("Queue", "UPDATE_COMPLETE", ""))
    aws.has_function(package.read_bytes())

    assert demo.deploy({}, package).changed


@pytest.mark.parametrize("changes", [True, False], ids=["from on demand to always", "by the next deployment"])
@pytest.mark.parametrize(("schedule", "wanted"), [("always", 0), ("always", 1), ("on-demand", 0)])
def test_a_stopped_spark_that_should_always_run_is_started(
    aws: Aws, demo: Deployment, package: Path, schedule: str, wanted: int, *, changes: bool
) -> None:
    """The alarm that stops it on demand stays active until the end of the change that deletes it."""
    given = {"Schedule": schedule}
    aws.has_stack("CREATE_COMPLETE", given)
    if changes:
        aws.has_code()
        aws.prepares()
        aws.has_events((STACK, "CREATE_COMPLETE", ""))
        aws.answers("execute_change_set", {}, EXECUTED)
    else:
        aws.answers("create_change_set", {"Id": CHANGES, "StackId": STACK_ID})
        aws.answers("describe_change_set", {"Status": "FAILED", "StatusReason": "No updates are to be performed."})
        aws.answers("delete_change_set", {})
    aws.has_stack("UPDATE_COMPLETE", given)
    if changes:
        aws.has_events((STACK, "CREATE_COMPLETE", ""))
    aws.has_function(package.read_bytes())
    started = (schedule, wanted) == ("always", 0)
    if schedule == "always":
        server = f"arn:aws:ecs:eu-central-1:{ACCOUNT}:service/cluster-1/spark-1"
        one = {"LogicalResourceId": "SparkService", "ResourceType": "AWS::ECS::Service", "PhysicalResourceId": server}
        state = {"LastUpdatedTimestamp": START, "ResourceStatus": "CREATE_COMPLETE"}
        aws.answers("list_stack_resources", {"StackResourceSummaries": [one | state]})
        counts = {"runningCount": wanted, "desiredCount": wanted}
        asked = {"cluster": "cluster-1", "services": ["spark-1"]}
        aws.answers("describe_services", {"services": [counts]}, asked, "ecs")
    if started:
        aws.answers("update_service", {}, {"cluster": "cluster-1", "service": "spark-1", "desiredCount": 1}, "ecs")

    done = demo.deploy({}, package)

    assert any("Spark was stopped" in note for note in done.notes) is started


def test_status_shows_why_a_server_stopped_and_a_file_was_postponed() -> None:
    aws = Aws()
    tasks = [f"arn:aws:ecs:eu-central-1:{ACCOUNT}:task/cluster-1/{name}" for name in ("a", "b")]
    asked = {"cluster": "cluster-1", "serviceName": "spark-1", "desiredStatus": "STOPPED"}
    aws.answers("describe_services", {"services": [{"runningCount": 0, "desiredCount": 1}]}, service="ecs")
    aws.answers("list_tasks", {"taskArns": tasks}, asked, "ecs")
    stops = [
        {"stoppedAt": START, "stoppedReason": "Essential container in task exited", "containers": [CRASHED]},
        {"stoppedAt": START - timedelta(minutes=5), "stoppedReason": "Scaling activity"},
    ]
    aws.answers("describe_tasks", {"tasks": stops}, {"cluster": "cluster-1", "tasks": tasks}, "ecs")
    line = {"level": "warning", "file": "s3://lake/a", "outcome": "put off", "reason": "Spark doesn't answer."}
    for message in (json.dumps(line), "not JSON"):
        event = {"timestamp": int(START.timestamp() * 1000), "message": message}
        aws.answers("filter_log_events", {"events": [event]}, None, "logs")

    [server] = server_status(Clients(aws), [f"arn:aws:ecs:eu-central-1:{ACCOUNT}:service/cluster-1/spark-1"])
    read, unread = (last_put_off(Clients(aws), "logs") for _ in range(2))

    assert (server.name, server.running, server.wanted) == ("spark-1", 0, 1)
    assert server.stopped == "2026-01-31 07:05:09 UTC: Essential container in task exited; spark: OutOfMemoryError"
    assert read == LoggedError(time=START, text="s3://lake/a: Spark doesn't answer.")
    assert unread == LoggedError(time=START, text="not JSON")


def test_a_function_with_replaced_code_is_an_error(aws: Aws, demo: Deployment, package: Path) -> None:
    aws.has_code()
    aws.has_stack("CREATE_COMPLETE")
    aws.prepares()
    aws.has_events((STACK, "CREATE_COMPLETE", ""))
    aws.answers("execute_change_set", {}, EXECUTED)
    aws.has_stack("UPDATE_COMPLETE")
    aws.has_events((STACK, "CREATE_COMPLETE", ""))
    aws.has_function(b"another's")

    with pytest.raises(DeploymentError, match=f"Function {FUNCTION} runs other code") as caught:
        demo.deploy({}, package)

    hint = str(caught.value.hint)
    assert f"list-event-source-mappings --function-name {FUNCTION}" in hint
    assert "update-event-source-mapping --no-enabled" in hint


@pytest.mark.parametrize("region", ["eu-central-1", "us-east-1", "me-south-1"])
def test_the_code_bucket_is_created_in_the_accounts_own_namespace(region: str) -> None:
    aws = Aws(region)
    aws.answers("get_caller_identity", {"Account": ACCOUNT}, None, "sts")
    name = DeploymentName("x" * 20).code_bucket(ACCOUNT, region)
    place: dict[str, Any] = {"CreateBucketConfiguration": {"LocationConstraint": region}}
    own = {"BucketNamespace": "account-regional"}
    aws.refuses("get_bucket_tagging", "NoSuchBucket", "", 404, "s3")
    expected = {**({} if region == "us-east-1" else place), **({} if region == "me-south-1" else own)}
    aws.answers("create_bucket", {}, {"Bucket": name, **expected}, "s3")
    aws.answers("put_public_access_block", {}, {"Bucket": name, "PublicAccessBlockConfiguration": ANY}, "s3")
    aws.answers("put_bucket_tagging", {}, {"Bucket": name, "Tagging": ANY}, "s3")

    Data(Clients(aws), STACK, SilentNarrator()).make_bucket(name)

    assert len(name) <= 63
    assert name.endswith(f"-{ACCOUNT}-{region}-an") is (region != "me-south-1")


def test_a_code_bucket_whose_creation_got_no_answer_is_tagged(aws: Aws) -> None:
    aws.refuses("get_bucket_tagging", "NoSuchBucket", "", 404, "s3")
    aws.refuses("create_bucket", "BucketAlreadyOwnedByYou", "", 409, "s3")
    aws.answers("put_public_access_block", {}, {"Bucket": CODE, "PublicAccessBlockConfiguration": ANY}, "s3")
    aws.answers("put_bucket_tagging", {}, {"Bucket": CODE, "Tagging": ANY}, "s3")

    Data(Clients(aws), STACK, SilentNarrator()).make_bucket(CODE)


@pytest.mark.parametrize("is_new", [True, False])
def test_a_deployment_that_is_not_approved_leaves_nothing(
    aws: Aws, demo: Deployment, package: Path, *, is_new: bool
) -> None:
    """No bucket, zip, change set or empty stack: a request for one would find no response."""
    if is_new:
        aws.has_no_stack()
    else:
        aws.has_stack("CREATE_COMPLETE")
    aws.prepares()
    aws.answers("delete_change_set", {}, {"ChangeSetName": CHANGES})
    if is_new:
        aws.has_stack("REVIEW_IN_PROGRESS")
        aws.answers("delete_stack", {}, {"StackName": STACK_ID})
    shown = []

    def refuse(plan: DeploymentPlan) -> bool:
        shown.append(plan)
        return False

    done = demo.deploy({}, package, approve=refuse)

    assert (done.changed, done.declined) == (False, True)
    assert [change.resource for change in shown[0].changes] == ["Queue"]


@pytest.mark.parametrize("status", ["CREATE_IN_PROGRESS", "CREATE_COMPLETE"])
def test_declining_does_not_delete_what_someone_else_deployed_meanwhile(
    aws: Aws, demo: Deployment, package: Path, status: str
) -> None:
    """A request to delete the stack would find no response."""
    aws.has_no_stack()
    aws.prepares()
    aws.answers("delete_change_set", {}, {"ChangeSetName": CHANGES})
    aws.has_stack(status)

    assert demo.deploy({}, package, approve=lambda _: False).declined


def test_a_deployment_interrupted_at_the_confirmation_leaves_nothing(aws: Aws, demo: Deployment, package: Path) -> None:
    aws.has_no_stack()
    aws.prepares()
    aws.answers("delete_change_set", {}, {"ChangeSetName": CHANGES})
    aws.has_stack("REVIEW_IN_PROGRESS")
    aws.answers("delete_stack", {}, {"StackName": STACK_ID})

    def interrupt(_: DeploymentPlan) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        demo.deploy({}, package, approve=interrupt)


def test_the_failing_resource_is_named_not_the_cancelled_ones(aws: Aws, demo: Deployment, package: Path) -> None:
    aws.has_code()
    aws.has_stack("CREATE_COMPLETE")
    aws.prepares()
    old = (STACK, "CREATE_COMPLETE", "")
    news = (
        ("Function", "UPDATE_FAILED", "Resource update cancelled"),
        ("Queue", "UPDATE_FAILED", "Queue lakegate already exists."),
        (STACK, "UPDATE_ROLLBACK_IN_PROGRESS", "The following resource(s) failed"),
        (STACK, "UPDATE_ROLLBACK_COMPLETE", ""),
    )
    aws.has_events(old)
    aws.answers("execute_change_set", {})
    aws.has_stack("UPDATE_ROLLBACK_COMPLETE")
    aws.has_events(old, *news)

    with pytest.raises(DeploymentError) as caught:
        demo.deploy({}, package)

    assert caught.value.message == (
        "Deploying stack lakegate-demo failed at Queue (AWS::SQS::Queue): Queue lakegate already exists. "
        "All changes were rolled back."
    )
    assert caught.value.context["resource"] == "Queue"
    assert caught.value.hint is not None
    assert "--bucket-name" in caught.value.hint


@pytest.mark.parametrize(
    ("status", "kind", "hint"),
    [
        ("ROLLBACK_COMPLETE", DeploymentError, "lakegate aws destroy --name demo --keep-data"),
        ("DELETE_FAILED", DeploymentError, "lakegate aws destroy --name demo --keep-data"),
        (
            "UPDATE_ROLLBACK_FAILED",
            DeploymentError,
            "aws cloudformation continue-update-rollback --stack-name lakegate-demo",
        ),
        ("UPDATE_IN_PROGRESS", RetryableError, "See its progress: lakegate aws status --name demo"),
    ],
)
def test_a_stack_that_can_only_be_deleted(
    aws: Aws, demo: Deployment, package: Path, status: str, kind: type[LakegateError], hint: str
) -> None:
    aws.has_stack(status)

    with pytest.raises(kind, match=STACK) as caught:
        demo.plan({}, package)

    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("code", "status", "kind", "words"),
    [
        ("AccessDenied", 403, ConfigurationError, "don't allow looking at stack lakegate-demo"),
        ("ExpiredToken", 403, ConfigurationError, "rejected these credentials"),
        ("Throttling", 400, RetryableError, "is unavailable"),
        ("InternalFailure", 500, RetryableError, "is unavailable"),
        ("TooManyRequestsException", 429, RetryableError, "is unavailable"),
        ("ValidationError", 400, DeploymentError, "refused looking at stack"),
    ],
)
def test_refusals(
    aws: Aws, demo: Deployment, package: Path, code: str, status: int, kind: type[LakegateError], words: str
) -> None:
    aws.refuses("describe_stacks", code, "because", status)

    with pytest.raises(kind, match=words):
        demo.plan({}, package)


def test_a_template_that_is_refused(aws: Aws, demo: Deployment, package: Path) -> None:
    aws.has_no_stack()
    aws.answers("create_change_set", {"Id": CHANGES, "StackId": STACK_ID})
    aws.answers("describe_change_set", {"Status": "FAILED", "StatusReason": "Validation failed. Call DescribeEvents."})
    invalid = {
        "EventId": "1",
        "EventType": "VALIDATION_ERROR",
        "LogicalResourceId": "Bucket",
        "ResourceType": "AWS::S3::Bucket",
        "ValidationStatusReason": f"{BUCKET} already exists",
    }
    aws.answers("describe_events", {"OperationEvents": [invalid]})
    aws.answers("delete_change_set", {})
    aws.has_stack("REVIEW_IN_PROGRESS")
    aws.answers("delete_stack", {})

    with pytest.raises(
        DeploymentError, match=rf"can't be planned at Bucket \(AWS::S3::Bucket\): {BUCKET} already exists"
    ):
        demo.plan({}, package)


def test_a_refusal_without_details(aws: Aws, demo: Deployment, package: Path) -> None:
    aws.has_no_stack()
    aws.answers("create_change_set", {"Id": CHANGES, "StackId": STACK_ID})
    aws.answers("describe_change_set", {"Status": "FAILED", "StatusReason": "Transform failed"})
    aws.refuses("describe_events", "AccessDenied", "", 403)
    aws.answers("delete_change_set", {})
    aws.has_stack("REVIEW_IN_PROGRESS")
    aws.answers("delete_stack", {})

    with pytest.raises(DeploymentError, match="can't be planned: Transform failed"):
        demo.plan({}, package)


def test_a_bucket_of_others_is_not_used(aws: Aws, demo: Deployment, package: Path) -> None:
    aws.has_no_stack()
    aws.prepares()
    aws.refuses("get_bucket_tagging", "NoSuchTagSet", "", 404, "s3")
    aws.answers("delete_change_set", {}, {"ChangeSetName": CHANGES})
    aws.has_stack("REVIEW_IN_PROGRESS")
    aws.answers("delete_stack", {}, {"StackName": STACK_ID})

    with pytest.raises(DeploymentError, match="doesn't belong to stack"):
        demo.deploy({}, package)


@pytest.mark.parametrize(("writes", "is_deleted"), [(1, True), (5, True), (6, False)])
def test_a_bucket_that_is_written_to_while_it_is_emptied(
    aws: Aws, demo: Deployment, writes: int, *, is_deleted: bool
) -> None:
    """Like a function call that was still running when the function was deleted."""
    aws.has_no_stack()
    for number in range(writes + is_deleted):
        version = {"Key": "warehouse/a", "VersionId": str(number), "Size": 3}
        expected = {"Objects": [{"Key": "warehouse/a", "VersionId": str(number)}], "Quiet": True}
        aws.answers("list_object_versions", {"Versions": [version]}, {"Bucket": BUCKET}, "s3")
        aws.answers("delete_objects", {}, {"Bucket": BUCKET, "Delete": expected}, "s3")
        if number < writes:
            aws.refuses("delete_bucket", "BucketNotEmpty", "", 409, "s3")
        else:
            aws.answers("delete_bucket", {}, {"Bucket": BUCKET}, "s3")
    found = DeploymentInventory(stack=STACK, state=None, data=(CONTENT,))

    if is_deleted:
        demo.destroy(found)
    else:
        with pytest.raises(DeploymentError, match="something wrote to it each time it was emptied"):
            demo.destroy(found)


@pytest.mark.parametrize("is_tagged", [True, False])
def test_kept_data_is_tagged_and_otherwise_untouched(aws: Aws, demo: Deployment, *, is_tagged: bool) -> None:
    others = {"Key": "team", "Value": "lake"}
    ours = {"Key": "lakegate:stack", "Value": STACK}
    aws.has_no_stack()
    tags = [others, ours] if is_tagged else [others]
    aws.answers("get_bucket_tagging", {"TagSet": tags}, {"Bucket": BUCKET}, "s3")
    if not is_tagged:
        aws.answers("put_bucket_tagging", {}, {"Bucket": BUCKET, "Tagging": {"TagSet": [others, ours]}}, "s3")
    found = DeploymentInventory(stack=STACK, state=None, data=(CONTENT,), tables=("t",), snapshots=("s",))

    demo.destroy(found, keep_data=True)  # any further request would have no answer


def test_buckets_are_found_by_tag_whatever_their_names(aws: Aws, demo: Deployment) -> None:
    ours = {"TagSet": [{"Key": "lakegate:stack", "Value": STACK}]}
    aws.has_no_stack()
    filters = {"TagFilters": [{"Key": "lakegate:stack", "Values": [STACK]}], "ResourceTypeFilters": ["s3"]}
    listed = [{"ResourceARN": f"arn:aws:s3:::{name}"} for name in ("my-lake", CODE)]
    aws.answers("get_resources", {"ResourceTagMappingList": listed}, filters, TAGGING)
    aws.refuses("get_bucket_tagging", "NoSuchBucket", "", 404, "s3")  # the usual name
    for name in (CODE, "my-lake"):
        aws.answers("get_bucket_tagging", ours, {"Bucket": name}, "s3")
        aws.answers("list_object_versions", {}, {"Bucket": name}, "s3")
    for name in ("refs", "objs"):
        aws.refuses("describe_table", "ResourceNotFoundException", name, 400, "dynamodb")
    aws.answers("describe_db_snapshots", {"DBSnapshots": []}, None, "rds")
    aws.has_no_repositories()
    aws.has_no_stack()  # that builds images

    found = demo.survey()

    assert [one.name for one in found.data] == ["my-lake"]
    assert [one.name for one in found.code] == [CODE]


def test_a_bucket_of_another_account_by_the_usual_name_is_left_alone(aws: Aws) -> None:
    aws.refuses("get_bucket_tagging", "AccessDenied", "", 403, "s3")
    data = Data(Clients(aws), STACK, SilentNarrator())

    assert data.content(BUCKET) is None

    aws.refuses("get_bucket_tagging", "AccessDenied", "", 403, "s3")
    with pytest.raises(ConfigurationError, match="don't allow looking at bucket"):
        data.content(BUCKET, is_ours=True)


def test_an_upload_that_is_refused_names_the_permission(aws: Aws, tmp_path: Path) -> None:
    (tmp_path / "function.zip").write_bytes(b"zip")
    aws.refuses("head_object", "404", "Not Found", 404, "s3")
    aws.refuses("put_object", "AccessDenied", "no identity-based policy allows it", 403, "s3")
    data = Data(Clients(aws), STACK, SilentNarrator())

    with pytest.raises(ConfigurationError, match=f"don't allow uploading to bucket {CODE}") as caught:
        data.upload(tmp_path / "function.zip", CODE, "function/x.zip")
    assert "PutObject" in str(caught.value.hint)


def test_snapshots_of_another_deployment_are_left_alone(aws: Aws) -> None:
    def tagged(stack: str) -> dict[str, Any]:
        return {"TagList": [{"Key": "lakegate:stack", "Value": stack}]}

    others = f"{STACK}-snapshot"
    snapshots = [
        {"DBSnapshotIdentifier": f"{STACK}-snapshot-database-1a2b", **tagged(STACK)},
        {"DBSnapshotIdentifier": f"{STACK}-snapshot-database-3c4d"},
        {"DBSnapshotIdentifier": f"{others}-snapshot-database-5e6f", **tagged(others)},
    ]
    aws.answers("describe_db_snapshots", {"DBSnapshots": snapshots}, None, "rds")

    found = Data(Clients(aws), STACK, SilentNarrator()).snapshots()

    assert found == (f"{STACK}-snapshot-database-1a2b", f"{STACK}-snapshot-database-3c4d")


def test_deleting_names_what_cannot_be_deleted(aws: Aws) -> None:
    stack = Stack(aws.client("cloudformation"), STACK, SilentNarrator(), poll_s=0)
    aws.has_stack("CREATE_COMPLETE")
    aws.answers("list_stack_resources", {"StackResourceSummaries": []})
    aws.has_events((STACK, "CREATE_COMPLETE", ""))
    aws.answers("delete_stack", {}, {"StackName": STACK_ID})
    events = ((STACK, "CREATE_COMPLETE", ""), ("Queue", "DELETE_FAILED", "It is in use"))
    aws.has_stack("DELETE_FAILED")
    aws.has_events(*events)

    with pytest.raises(DeploymentError, match=r"Deleting stack lakegate-demo failed at Queue .*: It is in use"):
        stack.delete()


def test_discarding_a_change_set_keeps_an_existing_stack(aws: Aws) -> None:
    stack = Stack(aws.client("cloudformation"), STACK, SilentNarrator(), poll_s=0)
    aws.answers("delete_change_set", {}, {"ChangeSetName": CHANGES})

    stack.discard(ChangeSet(CHANGES, STACK_ID, is_new=False, changes=(), values={}))


@pytest.mark.parametrize(
    ("action", "kind", "replacement", "leaves"),
    [
        ("modify", "AWS::S3::Bucket", "true", True),
        ("modify", "AWS::RDS::DBInstance", "conditional", True),
        ("remove", "AWS::DynamoDB::Table", None, True),
        ("modify", "AWS::RDS::DBInstance", "false", False),
        ("add", "AWS::S3::Bucket", None, False),
        ("modify", "AWS::SQS::Queue", "true", False),
    ],
)
def test_changes_that_abandon_data(action: str, kind: str, replacement: str | None, *, leaves: bool) -> None:
    assert ResourceChange(action=action, resource="X", type=kind, replacement=replacement).leaves_data is leaves


@pytest.mark.parametrize("name", ["", "Demo", "a_b", "1st", "demo-", "x" * 21])
def test_invalid_deployment_names(name: str) -> None:
    with pytest.raises(InputError, match="can't name a deployment"):
        Deployment(name, Clients(Aws()), SilentNarrator())


def test_without_a_region(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))

    with pytest.raises(ConfigurationError, match="No AWS region is set"):
        open_clients()


def test_without_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    with pytest.raises(ConfigurationError, match="No AWS credentials were found"):
        _ = open_clients("eu-central-1").account


def test_a_missing_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))

    with pytest.raises(ConfigurationError, match="nowhere"):
        open_clients("eu-central-1", "nowhere")


def test_cloudformation_assumes_the_given_role(aws: Aws, package: Path) -> None:
    role = f"arn:aws:iam::{ACCOUNT}:role/lakegate-deployer"
    aws.has_no_stack()
    request = _create(ANY, "CREATE")
    aws.prepares({**request, "RoleARN": role})
    aws.answers("delete_change_set", {}, {"ChangeSetName": CHANGES})
    aws.has_stack("REVIEW_IN_PROGRESS")
    aws.answers("delete_stack", {}, {"StackName": STACK_ID})

    Deployment("demo", Clients(aws), SilentNarrator(), role=role, poll_s=0).plan({}, package)

    with pytest.raises(InputError, match="isn't the ARN of a role"):
        Deployment("demo", Clients(Aws()), SilentNarrator(), role="lakegate-deployer")


def test_a_network_without_subnets(aws: Aws, demo: Deployment, package: Path) -> None:
    with pytest.raises(InputError, match="--vpc-id and --subnet-ids go together"):
        demo.plan({"VpcId": "vpc-0123456789abcdef0"}, package)
