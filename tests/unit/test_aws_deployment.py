"""Planning, making, changing and deleting a deployment, against answers of AWS as its library checks them."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from lakegate.aws.clients import Clients, open_clients
from lakegate.aws.deployment import Deployment
from lakegate.aws.errors import DeploymentError
from lakegate.aws.stack import ChangeSet, Stack
from lakegate.aws.values import BucketContent, Change, Plan, Survey
from lakegate.errors import ConfigurationError, InputError, LakegateError, RetryableError
from lakegate.narration import SilentNarrator

FORMATION = "cloudformation"
STACK = "lakegate-demo"
STACK_ID = f"arn:aws:cloudformation:eu-central-1:123456789012:stack/{STACK}/11111111-2222"
CHANGES = "arn:aws:cloudformation:eu-central-1:123456789012:changeSet/lakegate-x/33333333-4444"
BUCKET = f"{STACK}-123456789012-eu-central-1"
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


class Aws:
    """Answers for the services that are asked, in the order in which each is asked."""

    def __init__(self) -> None:
        self.session = boto3.Session("AKIDEXAMPLE", "no-secret", region_name="eu-central-1")
        self.clients: dict[str, Any] = {}
        self.stubs: dict[str, Stubber] = {}
        for service in ("cloudformation", "s3", "sts"):
            client = self.session.client(service)
            self.clients[service] = client
            self.stubs[service] = Stubber(client)
            self.stubs[service].activate()

    def client(self, service: str, **_: Any) -> Any:
        return self.clients[service]

    def answers(self, method: str, answer: Mapping[str, Any], expected: Any = None, service: str = FORMATION) -> None:
        self.stubs[service].add_response(method, dict(answer), expected)

    def refuses(self, method: str, code: str, text: str = "", status: int = 400, service: str = FORMATION) -> None:
        self.stubs[service].add_client_error(method, code, text, status)

    def has_no_stack(self) -> None:
        self.refuses("describe_stacks", "ValidationError", f"Stack with id {STACK} does not exist")

    def has_stack(self, status: str, parameters: Mapping[str, str] | None = None, reason: str = "") -> None:
        given = [{"ParameterKey": key, "ParameterValue": value} for key, value in (parameters or {}).items()]
        stack = {
            "StackId": STACK_ID,
            "StackName": STACK,
            "CreationTime": START,
            "StackStatus": status,
            "StackStatusReason": reason,
            "Parameters": given,
            "Outputs": [{"OutputKey": "Bucket", "OutputValue": BUCKET}],
        }
        self.answers("describe_stacks", {"Stacks": [stack]})

    def prepares(self, expected: Any = None, changes: tuple[Any, ...] = (QUEUE_CHANGE,)) -> None:
        self.answers("create_change_set", {"Id": CHANGES, "StackId": STACK_ID}, expected)
        self.answers("describe_change_set", {"Status": "CREATE_COMPLETE"})
        self.answers("describe_change_set", {"Status": "CREATE_COMPLETE", "Changes": list(changes)})

    def has_events(self, *events: tuple[str, str, str]) -> None:
        """Tell of events, the newest first as AWS does: resource, status, reason."""
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
        self.answers("get_bucket_tagging", tags, {"Bucket": f"{STACK}-code-123456789012-eu-central-1"}, "s3")
        self.answers("head_object", {"ContentLength": 1}, None, "s3")


@pytest.fixture
def aws() -> Iterator[Aws]:
    made = Aws()
    made.answers("get_caller_identity", {"Account": "123456789012"}, None, "sts")
    yield made
    for service in ("cloudformation", "s3"):
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


def _create(parameters: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    failure = {"OnStackFailure": "DELETE"} if kind == "CREATE" else {}
    return {
        "StackName": STACK,
        "ChangeSetName": ANY,
        "ChangeSetType": kind,
        "TemplateBody": ANY,
        "Parameters": parameters,
        "Capabilities": ["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
        "Tags": [{"Key": "lakegate:stack", "Value": STACK}],
        **failure,
    }


def test_a_plan_leaves_nothing_behind(aws: Aws, demo: Deployment, package: Path) -> None:
    aws.has_no_stack()
    aws.prepares()
    aws.answers("delete_change_set", {}, {"ChangeSetName": CHANGES})
    aws.answers("delete_stack", {}, {"StackName": STACK_ID})

    planned = demo.plan({}, package)

    properties = ("VisibilityTimeout",)
    change = Change(
        action="modify", resource="Queue", type="AWS::SQS::Queue", replacement="false", properties=properties
    )
    assert planned == Plan(stack=STACK, is_new=True, changes=(change,))


def test_what_is_not_given_stays_as_it_was(aws: Aws, demo: Deployment, package: Path) -> None:
    before = {"BatchSize": "7", "LogDays": "90", "CodeKey": "old", "CodeBucket": "code", "OfAnEarlierVersion": "1"}
    aws.has_stack("UPDATE_COMPLETE", before)
    parameters: list[dict[str, Any]] = [
        {"ParameterKey": "BatchSize", "ParameterValue": "10"},
        {"ParameterKey": "CodeBucket", "ParameterValue": f"{STACK}-code-123456789012-eu-central-1"},
        {"ParameterKey": "CodeKey", "ParameterValue": f"function/{sha256(package.read_bytes()).hexdigest()}.zip"},
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
    aws.has_code()
    aws.has_stack("CREATE_COMPLETE")
    aws.answers("create_change_set", {"Id": CHANGES, "StackId": STACK_ID})
    aws.answers("describe_change_set", {"Status": "FAILED", "StatusReason": reason})
    aws.answers("delete_change_set", {})
    aws.has_stack("CREATE_COMPLETE")

    done = demo.deploy({}, package)

    assert (done.changed, done.outputs) == (False, {"Bucket": BUCKET})


def test_a_deployment_follows_the_stack_to_its_end(aws: Aws, demo: Deployment, package: Path) -> None:
    aws.has_code()
    aws.has_stack("CREATE_COMPLETE")
    aws.prepares()
    aws.has_events((STACK, "CREATE_COMPLETE", ""))
    aws.answers("execute_change_set", {}, {"ChangeSetName": CHANGES})
    begun = ((STACK, "CREATE_COMPLETE", ""), ("Queue", "UPDATE_IN_PROGRESS", ""))
    aws.has_stack("UPDATE_IN_PROGRESS")
    aws.has_events(*begun)
    aws.has_stack("UPDATE_COMPLETE")
    aws.has_events(*begun, ("Queue", "UPDATE_COMPLETE", ""))

    assert demo.deploy({}, package).changed


def test_a_deployment_that_is_not_approved_is_not_made(aws: Aws, demo: Deployment, package: Path) -> None:
    aws.has_code()
    aws.has_stack("CREATE_COMPLETE")
    aws.prepares()
    aws.answers("delete_change_set", {}, {"ChangeSetName": CHANGES})
    shown = []

    def refuse(plan: Plan) -> bool:
        shown.append(plan)
        return False

    done = demo.deploy({}, package, approve=refuse)

    assert not done.changed
    assert [change.resource for change in shown[0].changes] == ["Queue"]


def test_a_failing_resource_is_named_not_those_that_were_cancelled_for_it(
    aws: Aws, demo: Deployment, package: Path
) -> None:
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
        "Everything is as it was before."
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
        ("UPDATE_IN_PROGRESS", RetryableError, "See how far it is: lakegate aws status --name demo"),
    ],
)
def test_a_stack_from_which_nothing_leads_on(
    aws: Aws, demo: Deployment, package: Path, status: str, kind: type[LakegateError], hint: str
) -> None:
    aws.has_stack(status)

    with pytest.raises(kind, match=STACK) as caught:
        demo.plan({}, package)

    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("code", "status", "kind", "words"),
    [
        ("AccessDenied", 403, ConfigurationError, "does not allow looking at stack lakegate-demo"),
        ("ExpiredToken", 403, ConfigurationError, "does not accept these credentials"),
        ("Throttling", 400, RetryableError, "could not serve"),
        ("InternalFailure", 500, RetryableError, "could not serve"),
        ("ValidationError", 400, DeploymentError, "refuses looking at stack"),
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
    aws.answers("delete_stack", {})

    with pytest.raises(
        DeploymentError, match=rf"cannot be planned at Bucket \(AWS::S3::Bucket\): {BUCKET} already exists"
    ):
        demo.plan({}, package)


def test_a_refusal_that_cannot_be_looked_into(aws: Aws, demo: Deployment, package: Path) -> None:
    aws.has_no_stack()
    aws.answers("create_change_set", {"Id": CHANGES, "StackId": STACK_ID})
    aws.answers("describe_change_set", {"Status": "FAILED", "StatusReason": "Transform failed"})
    aws.refuses("describe_events", "AccessDenied", "", 403)
    aws.answers("delete_change_set", {})
    aws.answers("delete_stack", {})

    with pytest.raises(DeploymentError, match="cannot be planned: Transform failed"):
        demo.plan({}, package)


def test_a_bucket_of_others_is_not_used(aws: Aws, demo: Deployment, package: Path) -> None:
    aws.refuses("get_bucket_tagging", "NoSuchTagSet", "", 404, "s3")

    with pytest.raises(DeploymentError, match="does not belong to stack"):
        demo.deploy({}, package)


def test_a_bucket_that_is_written_to_while_it_is_emptied(aws: Aws, demo: Deployment) -> None:
    version = {"Key": "landing/a", "VersionId": "1", "Size": 3}
    aws.has_no_stack()
    aws.answers("list_object_versions", {"Versions": [version]}, {"Bucket": BUCKET}, "s3")
    aws.answers("delete_objects", {}, None, "s3")
    aws.refuses("delete_bucket", "BucketNotEmpty", "", 409, "s3")
    found = Survey(stack=STACK, state=None, data=BucketContent(name=BUCKET, objects=1, size_bytes=3))

    with pytest.raises(DeploymentError, match="is not empty"):
        demo.destroy(found)


def test_data_that_is_kept_is_not_touched(aws: Aws, demo: Deployment) -> None:
    aws.has_no_stack()
    content = BucketContent(name=BUCKET, objects=1, size_bytes=3)
    found = Survey(stack=STACK, state=None, data=content, tables=("t",), snapshots=("s",))

    demo.destroy(found, keep_data=True)  # any further request would have no answer


def test_deleting_names_what_cannot_be_deleted(aws: Aws) -> None:
    stack = Stack(aws.clients["cloudformation"], STACK, SilentNarrator(), poll_s=0)
    aws.has_stack("CREATE_COMPLETE")
    aws.answers("list_stack_resources", {"StackResourceSummaries": []})
    aws.has_events((STACK, "CREATE_COMPLETE", ""))
    aws.answers("delete_stack", {}, {"StackName": STACK_ID})
    events = ((STACK, "CREATE_COMPLETE", ""), ("Queue", "DELETE_FAILED", "It is in use"))
    aws.has_stack("DELETE_FAILED")
    aws.has_events(*events)

    with pytest.raises(DeploymentError, match=r"Deleting stack lakegate-demo failed at Queue .*: It is in use"):
        stack.delete()


def test_a_change_set_of_a_stack_that_is_there_leaves_the_stack(aws: Aws) -> None:
    stack = Stack(aws.clients["cloudformation"], STACK, SilentNarrator(), poll_s=0)
    aws.answers("delete_change_set", {}, {"ChangeSetName": CHANGES})

    stack.discard(ChangeSet(CHANGES, STACK_ID, is_new=False, changes=()))


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
def test_changes_that_part_from_data(action: str, kind: str, replacement: str | None, *, leaves: bool) -> None:
    assert Change(action=action, resource="X", type=kind, replacement=replacement).leaves_data is leaves


@pytest.mark.parametrize("name", ["", "Demo", "a_b", "1st", "demo-", "x" * 21])
def test_names_that_no_bucket_may_have(name: str) -> None:
    with pytest.raises(InputError, match="cannot name a deployment"):
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
        open_clients("eu-central-1").account  # noqa: B018 - asking is what fails


def test_a_profile_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))

    with pytest.raises(ConfigurationError, match="nowhere"):
        open_clients("eu-central-1", "nowhere")


def test_a_network_without_subnets(aws: Aws, demo: Deployment, package: Path) -> None:
    with pytest.raises(InputError, match="--vpc-id and --subnet-ids go together"):
        demo.plan({"VpcId": "vpc-0123456789abcdef0"}, package)
