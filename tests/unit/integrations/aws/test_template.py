"""The deployment's template: what it promises about queues, secrets and permissions."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Iterator
from fnmatch import fnmatchcase
from importlib import util
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

import lakegate
from lakegate.config import Settings, load_settings
from lakegate.integrations.aws import sizing
from lakegate.integrations.aws.building import SPARK_JARS, spark_source
from lakegate.integrations.aws.deployment import database_authority
from lakegate.integrations.aws.parameters import FILLED_IN, PARAMETERS, TEMPLATE, defaults, template_body
from lakegate.integrations.aws_lambda.events import AnnouncedObject, EventMessage
from lakegate.integrations.aws_lambda.work import CANARY_NAMESPACE, FileOutcome, delay_s
from lakegate.loading.routes import Routes
from support.deploy_files import DEPLOY, load, load_template

SCHEDULED = {"lakegate": "notify late"}
"""As the function's test, in test_aws_lambda_work, has it."""
SOURCE = Path(lakegate.__file__).parent
_INLINE_LIMIT = 51_200
_ANY_RESOURCE_ALLOWED = {"NetworkInterfaces", "OwnSecrets", "OwnQueues", "SignIn"}


@pytest.fixture(scope="module")
def template() -> dict[str, Any]:
    return load_template(TEMPLATE)


def test_it_can_be_sent_without_a_bucket(template: dict[str, Any]) -> None:
    """As JSON with the same content: a bucket for it would have to be created before the approval."""
    sent = template_body()
    descriptions = {name: {"Description": one["Description"]} for name, one in template["Parameters"].items()}
    restored = json.loads(sent)
    for name, one in descriptions.items():
        restored["Parameters"][name] |= one

    assert len(sent.encode()) < _INLINE_LIMIT
    assert restored == template


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


def test_the_defaults_are_read_from_the_template(template: dict[str, Any]) -> None:
    theirs = {name: str(one["Default"]) for name, one in template["Parameters"].items() if "Default" in one}

    assert dict(defaults()) == theirs
    sizing.require_fitting(defaults())


def test_sizes_are_counted_as_the_template_has_them(template: dict[str, Any]) -> None:
    resources = template["Resources"]
    variables = resources["Function"]["Properties"]["Environment"]["Variables"]
    [*_, nessie] = resources["CatalogTask"]["Properties"]["ContainerDefinitions"]
    given = [one["Fn::If"][1] if "Fn::If" in one else one for one in nessie["Environment"]]
    pool = {one["Name"]: one["Value"] for one in given}["QUARKUS_DATASOURCE_POSTGRESQL_JDBC_MAX_SIZE"]

    assert int(variables["LAKEGATE_JOURNAL_MAX_CONNECTIONS"]) == sizing.CONNECTIONS_OF_A_CALL
    assert int(pool) == sizing.CONNECTIONS_OF_NESSIE
    assert sizing.CALLS_OF_SPARK.keys() == template["Mappings"]["Spark"].keys()
    for size, calls in sizing.CALLS_OF_SPARK.items():
        assert int(template["Mappings"]["Spark"][size]["Heap"].removesuffix("g")) * 2 >= calls


_ALARMS = {
    "DeadLettersAlarm": ("AWS/SQS", "ApproximateNumberOfMessagesVisible", "Maximum", None),
    "WaitingAlarm": ("AWS/SQS", "ApproximateAgeOfOldestMessage", "Maximum", None),
    "ErrorsAlarm": ("AWS/Lambda", "Errors", "Sum", None),
    "ThrottlesAlarm": ("AWS/Lambda", "Throttles", "Sum", None),
    "CatalogAlarm": ("AWS/ECS", "CPUUtilization", "SampleCount", "MakeCatalog"),
    "SparkAlarm": ("AWS/ECS", "CPUUtilization", "SampleCount", "AlwaysOn"),
    "DatabaseAlarm": ("AWS/RDS", "FreeStorageSpace", "Minimum", "MakeDatabase"),
}


def test_alarms_watch_what_can_go_wrong_and_tell_whoever_is_to_hear(template: dict[str, Any]) -> None:
    alarms = {name: one for name, one in template["Resources"].items() if one["Type"] == "AWS::CloudWatch::Alarm"}

    for name, (namespace, metric, statistic, condition) in _ALARMS.items():
        alarm = alarms[name]["Properties"]
        assert (alarm["Namespace"], alarm["MetricName"], alarm["Statistic"]) == (namespace, metric, statistic), name
        assert alarms[name].get("Condition") == condition, name
        assert alarm["AlarmActions"] == {"Fn::If": ["HasAlarmEmail", [{"Ref": "AlarmTopic"}], []]}, name
    for name in ("CatalogAlarm", "SparkAlarm"):  # a service without tasks sends nothing at all
        alarm = alarms[name]["Properties"]
        assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("LessThanThreshold", 1)
        assert alarm["TreatMissingData"] == "breaching"


def test_somebody_hears_of_files_that_wait_while_none_is_done(template: dict[str, Any]) -> None:
    """Whether or not Spark always runs, postponed messages are no error and soon don't count in the oldest age."""
    stuck = template["Resources"]["StuckAlarm"]
    alarm = stuck["Properties"]
    metrics = {one["Id"]: one["MetricStat"] for one in alarm["Metrics"] if "MetricStat" in one}
    [expression] = [one["Expression"] for one in alarm["Metrics"] if "Expression" in one]

    assert stuck["Condition"] == "HasAlarmEmail"
    assert {name: (one["Metric"]["MetricName"], one["Stat"]) for name, one in metrics.items()} == {
        "waiting": ("ApproximateNumberOfMessagesVisible", "Maximum"),
        "inflight": ("ApproximateNumberOfMessagesNotVisible", "Maximum"),
        "done": ("NumberOfMessagesDeleted", "Sum"),
    }
    assert expression == "IF(waiting + FILL(inflight, 0) > 0 AND FILL(done, 0) == 0, 1, 0)"
    assert {one["Period"] * alarm["EvaluationPeriods"] for one in metrics.values()} == {3600}
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("GreaterThanThreshold", 0)
    assert alarm["AlarmActions"] == [{"Ref": "AlarmTopic"}]


def test_the_file_of_smoke_has_a_route_where_namespaces_are_named(template: dict[str, Any]) -> None:
    routes = template["Resources"]["Function"]["Properties"]["Environment"]["Variables"]["LAKEGATE_WATCH_ROUTES"]
    only = routes["Fn::If"][2]["Fn::Sub"][1]["Only"]["Fn::If"]
    names = {"Fn::Join": ["|", {"Fn::Split": [",", {"Ref": "Namespaces"}]}]}

    assert only == ["HasNamespaces", {"Fn::Join": ["|", [f":{CANARY_NAMESPACE}", names]]}, ""]


def test_spark_on_demand_starts_by_the_first_message_and_stops_when_none_is_left(template: dict[str, Any]) -> None:
    resources = template["Resources"]
    names = ["SparkScaling", "SparkStart", "SparkStop", "SparkWanted", "SparkIdle"]
    scaling, start, stop, wanted, idle = (resources[name]["Properties"] for name in names)

    assert {resources[name]["Condition"] for name in names} == {"OnDemand"}
    assert (scaling["MinCapacity"], scaling["MaxCapacity"]) == (0, 1)
    capacity = [
        one["StepScalingPolicyConfiguration"]["StepAdjustments"][0]["ScalingAdjustment"] for one in (start, stop)
    ]
    assert capacity == [1, 0]
    assert (wanted["AlarmActions"], idle["AlarmActions"]) == ([{"Ref": "SparkStart"}], [{"Ref": "SparkStop"}])
    # What a call works on, or put back for later, must keep Spark: only both together are "nothing".
    for alarm in (wanted, idle):
        metrics = {one["Id"]: one for one in alarm["Metrics"]}
        read = {one["MetricStat"]["Metric"]["MetricName"] for one in metrics.values() if "MetricStat" in one}
        assert read == {"ApproximateNumberOfMessagesVisible", "ApproximateNumberOfMessagesNotVisible"}
        # SQS sends no number of messages in flight while there are none, and a sum with nothing is nothing.
        assert metrics["all"]["Expression"] == "waiting + FILL(inflight, 0)"
    # Steps begin at the threshold: a count must never be just that.
    assert (wanted["ComparisonOperator"], wanted["Threshold"]) == ("GreaterThanThreshold", 0)
    assert (idle["ComparisonOperator"], idle["Threshold"]) == ("LessThanThreshold", 1)
    assert idle["EvaluationPeriods"] >= 15 > wanted["EvaluationPeriods"]
    # A count in the template would start it with each update.
    desired = resources["SparkService"]["Properties"]["DesiredCount"]
    assert desired == {"Fn::If": ["OnDemand", {"Ref": "AWS::NoValue"}, 1]}


def test_a_message_outlasts_a_start_of_spark_many_times(template: dict[str, Any]) -> None:
    """On demand, Spark takes minutes to start. Messages waiting for it must stay far from the dead-letter queue."""
    away = {"s3://lake/a": FileOutcome("put off", is_done=False)}
    file = AnnouncedObject("lake", "a")
    waited, fetched = 0, 0
    while waited < 1800:  # three times what a slow start takes
        fetched += 1
        waited += delay_s(EventMessage((file,), times=fetched), away, Settings().function)

    assert fetched < template["Parameters"]["MaxReceiveCount"]["Default"] / 5


def test_without_a_nat_gateway_servers_have_addresses_and_the_function_endpoints(template: dict[str, Any]) -> None:
    resources = template["Resources"]

    assert {name for name, one in resources.items() if one.get("Condition") == "ByNat"} == {
        "WayOutAddress",
        "WayOut",
        "PrivateRoute",
    }
    for service in ("CatalogService", "SparkService"):
        network = resources[service]["Properties"]["NetworkConfiguration"]["AwsvpcConfiguration"]
        assert network["AssignPublicIp"] == {"Fn::If": ["ByEndpoints", "ENABLED", "DISABLED"]}
        assert network["Subnets"]["Fn::If"][2]["Fn::If"][:2] == ["ByEndpoints", [{"Ref": "PublicSubnet"}]]
    endpoints = [one["Properties"] for one in resources.values() if one.get("Condition") == "ByEndpoints"]
    services = [one["ServiceName"]["Fn::Sub"].rpartition(".")[2] for one in endpoints if "ServiceName" in one]
    assert sorted(services) == ["secretsmanager", "sqs"]
    assert all(one["PrivateDnsEnabled"] for one in endpoints if "ServiceName" in one)


def test_the_database_s_disk_grows_by_itself(template: dict[str, Any]) -> None:
    assert template["Resources"]["Database"]["Properties"]["MaxAllocatedStorage"] == {"Ref": "DatabaseMaxGb"}


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
        if statement["Effect"] == "Allow" and "Resource" in statement and name != "FilesEndpoint"
    ]

    assert len(allowed) > 10
    for name, statement in allowed:
        assert not [action for action in _actions(statement) if "*" in action], name
        if statement["Sid"] not in _ANY_RESOURCE_ALLOWED:
            assert statement["Resource"] != "*", (name, statement["Sid"])


def test_the_function_deletes_no_object(template: dict[str, Any]) -> None:
    """As in docs/how-to/keep-tables-on-s3.md: writers and publishers get and put objects, `gc` deletes them."""
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

    assert denied - {"FunctionRole"} == {"BucketPolicy", "QueuePolicy", "DeadLettersPolicy"}


def test_roles_are_assumed_by_services_for_this_account_alone(template: dict[str, Any]) -> None:
    account = {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
    for name, one in template["Resources"].items():
        if one["Type"] == "AWS::IAM::Role":
            for statement in one["Properties"]["AssumeRolePolicyDocument"]["Statement"]:
                assert statement["Condition"]["StringEquals"] == account, name
                if statement["Principal"]["Service"].startswith("ecs"):
                    assert "ecs:" in statement["Condition"]["ArnLike"]["aws:SourceArn"]["Fn::Sub"], name


def test_the_function_s_code_can_do_nothing_with_network_interfaces(template: dict[str, Any]) -> None:
    """Lambda needs this permission of the role to put the function into a network; its code doesn't."""
    rights = {one.get("Sid"): one for name, one in _statements(template) if name == "FunctionRole"}
    denied = rights["NoNetworkInterfacesForTheCode"]

    assert set(_actions(denied)) == set(_actions(rights["NetworkInterfaces"]))
    # AWS puts this key into requests from within the function, and into none that Lambda itself makes of EC2.
    assert (denied["Effect"], denied["Condition"]) == ("Deny", {"Null": {"lambda:SourceFunctionArn": "false"}})


def test_buckets_are_listed_by_what_the_roles_may_read_only(template: dict[str, Any]) -> None:
    listing = [(name, one) for name, one in _statements(template) if "s3:ListBucket" in _actions(one)]

    assert {name for name, _ in listing} == {"FunctionRole", "SparkRole"}
    for name, one in listing:
        prefixes = one["Condition"]["StringLikeIfExists"]["s3:prefix"]
        assert prefixes == [{"Fn::Sub": "${LandingPrefix}*"}, "warehouse/*"], name


def test_nothing_is_written_by_the_endpoint_but_to_this_account_s_buckets(template: dict[str, Any]) -> None:
    statements = template["Resources"]["FilesEndpoint"]["Properties"]["PolicyDocument"]["Statement"]
    others = [
        one for one in statements if "aws:ResourceAccount" not in one.get("Condition", {}).get("StringEquals", {})
    ]

    assert len(statements) - len(others) == 1
    assert {action for one in others for action in _actions(one)} == {"s3:GetObject"}  # layers of images


@pytest.mark.parametrize(
    ("group", "ports"),
    [
        ("FunctionGroup", {19120, 15002, 5432}),
        ("CatalogGroup", {5432}),
        ("SparkGroup", {19120}),
        ("DatabaseGroup", set()),
    ],
)
def test_servers_and_function_speak_to_what_they_need_and_no_others(
    template: dict[str, Any], group: str, ports: set[int]
) -> None:
    """A group without such rules may connect to everything."""
    rules = template["Resources"][group]["Properties"]["SecurityGroupEgress"]
    always = [rule for rule in rules if "Fn::If" not in rule]
    inside = [rule["Fn::If"][1] for rule in rules if "Fn::If" in rule and isinstance(rule["Fn::If"][1]["CidrIp"], dict)]

    if group == "DatabaseGroup":
        assert [rule["CidrIp"] for rule in rules] == ["127.0.0.1/32"]
    else:
        assert [(rule["FromPort"], rule["ToPort"]) for rule in always] == [(443, 443)]
    assert {rule["FromPort"] for rule in inside} == ports
    assert all(rule["CidrIp"] == {"Fn::If": ["HasNetwork", "0.0.0.0/0", {"Ref": "NetworkCidr"}]} for rule in inside)


def test_the_function_is_given_the_journal_s_password_where_nessie_shares_the_database(
    template: dict[str, Any],
) -> None:
    """tests/integration/test_aws_database.py tests the users' permissions on a real Postgres."""
    variables = template["Resources"]["Function"]["Properties"]["Environment"]["Variables"]
    [secrets] = [one for name, one in _statements(template) if one.get("Sid") == "Secrets" and name == "FunctionRole"]
    made = next(one["Fn::If"] for one in secrets["Resource"] if one["Fn::If"][0] == "MakeJournal")

    assert made[1] == {"Fn::If": ["IsShared", {"Ref": "JournalPassword"}, {"Ref": "DatabasePassword"}]}
    assert variables["LAKEGATE_JOURNAL_PASSWORD"]["Fn::If"][1]["Fn::If"][1:] == [
        {"Fn::Sub": "aws-secret:${JournalPassword}"},
        {"Fn::Sub": "aws-secret:${DatabasePassword}"},
    ]
    assert "//journal@" in variables["LAKEGATE_JOURNAL_URL"]["Fn::If"][1]["Fn::If"][1]["Fn::Sub"]
    assert template["Conditions"]["IsShared"] == {
        "Fn::And": [{"Condition": "MakeJournal"}, {"Condition": "OnPostgres"}]
    }


def test_the_database_s_certificate_is_checked_by_all_who_speak_to_it(template: dict[str, Any]) -> None:
    resources = template["Resources"]
    variables = resources["Function"]["Properties"]["Environment"]["Variables"]
    catalog = resources["CatalogTask"]["Properties"]
    setup, nessie = catalog["ContainerDefinitions"][0]["Fn::If"][1], catalog["ContainerDefinitions"][1]
    text = json.dumps(nessie)

    assert variables["LAKEGATE_JOURNAL_TLS"]["Fn::If"][:2] == ["MakeJournal", "true"]
    file = variables["LAKEGATE_JOURNAL_CA_FILE"]["Fn::If"][1]
    assert (SOURCE / file.removeprefix("/var/task/lakegate/")).is_file()
    assert "?sslmode=verify-full&sslrootcert=/trust/rds.pem" in text
    assert {"Name": "PGSSLMODE", "Value": "verify-full"} in setup["Environment"]
    assert {"Name": "PGSSLROOTCERT", "Value": "/trust/rds.pem"} in setup["Environment"]
    assert nessie["DependsOn"]["Fn::If"][1] == [{"ContainerName": "database", "Condition": "SUCCESS"}]
    # The file holds the authorities of one kind, and the server's certificate is of that.
    assert resources["Database"]["Properties"]["CACertificateIdentifier"] == "rds-ca-rsa2048-g1"


def test_authorities_of_rds_are_known_by_region() -> None:
    file = SOURCE / "credentials" / "rds.pem"
    regions = re.findall(r"^# ([a-z]+-[a-z]+-\d)$", file.read_text(encoding="ascii"), re.MULTILINE)

    assert len(regions) == len(ssl.create_default_context(cafile=file).get_ca_certs()) > 25
    for region in regions:
        certificate = x509.load_pem_x509_certificate(str(database_authority(region)).encode())
        assert f"Amazon RDS {region} Root CA RSA2048 G1" in certificate.subject.rfc4514_string()
        assert certificate.issuer == certificate.subject
        assert certificate.not_valid_after_utc.year > 2060
        assert len(str(database_authority(region))) < 4096  # a parameter's limit


def test_the_service_role_may_read_whatever_it_makes(template: dict[str, Any]) -> None:
    """AWS's schema of a resource type lists the permissions with which CloudFormation reads it after creation."""
    found = util.find_spec("cfnlint")
    assert found is not None
    assert found.origin is not None
    folder = Path(found.origin).parent / "data" / "schemas" / "resources"
    schemas = (json.loads(file.read_text(encoding="utf-8")) for file in folder.glob("*.json"))
    kinds = {one["Type"] for one in template["Resources"].values()}
    needed = {
        right
        for schema in schemas
        if schema["typeName"] in kinds
        for right in schema.get("handlers", {}).get("read", {}).get("permissions", ())
        # Keys of one's own, and endpoints to networks of services: the template has neither.
        if not right.startswith(("kms:", "vpc-lattice:"))
    }
    policy = json.loads((DEPLOY / "aws" / "service-role-policy.json").read_text(encoding="utf-8"))

    assert needed
    assert needed - {action for statement in policy["Statement"] for action in statement["Action"]} == set()


def test_the_service_role_s_policy_speaks_of_each_kind_of_resource(template: dict[str, Any]) -> None:
    """tests/integration/test_aws_deploy.py checks the deployer's policy against a deployment's own calls."""
    policy = json.loads((DEPLOY / "aws" / "service-role-policy.json").read_text(encoding="utf-8"))
    kinds = {one["Type"].split("::")[1] for one in template["Resources"].values()}
    rights = {action for statement in policy["Statement"] for action in statement["Action"]}

    prefixes = {"applicationautoscaling": "application-autoscaling"}
    assert {prefixes.get(kind.lower(), kind.lower()) for kind in kinds} <= {one.partition(":")[0] for one in rights}
    assert [action for action in rights if "*" in action] == []
    for statement in policy["Statement"]:
        if any(action.startswith(("iam:", "s3:", "sqs:", "dynamodb:")) for action in statement["Action"]):
            assert "lakegate-" in statement["Resource"] or statement["Sid"] == "ServiceLinkedRoles", statement["Sid"]
        if any(action.startswith("logs:") and ":Describe" not in action for action in statement["Action"]):
            assert "lakegate-" in statement["Resource"], statement["Sid"]
    assert len(json.dumps(policy, separators=(",", ":"))) < 10_240  # the limit of a role's own policies
    deployer = json.loads((DEPLOY / "aws" / "deployer-policy.json").read_text(encoding="utf-8"))
    [role] = [one["Resource"] for one in deployer["Statement"] if one["Action"] == ["iam:PassRole"]]
    assert not fnmatchcase(role, "arn:aws:iam::*:role/lakegate-*")  # else it could give itself any right


def test_a_function_from_an_image_can_be_made_and_looked_at_by_the_policies() -> None:
    """As Lambda's documentation requires: the creator may read the image, and set who else may."""
    deployer, role = (
        {
            action
            for statement in json.loads(file.read_text(encoding="utf-8"))["Statement"]
            for action in statement["Action"]
        }
        for file in (DEPLOY / "aws" / "deployer-policy.json", DEPLOY / "aws" / "service-role-policy.json")
    )

    assert {"lambda:GetFunction", "lambda:GetFunctionConfiguration"} <= deployer
    image = ("BatchGetImage", "GetDownloadUrlForLayer", "GetRepositoryPolicy", "SetRepositoryPolicy")
    assert {f"ecr:{name}" for name in image} <= role


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


@pytest.mark.parametrize("only", ["", f":{CANARY_NAMESPACE}|nyc|sales"])
def test_the_function_s_variables_are_settings(template: dict[str, Any], tmp_path: Path, only: str) -> None:
    """Each variable names a setting, and lakegate can parse the two that hold JSON."""
    variables = template["Resources"]["Function"]["Properties"]["Environment"]["Variables"]
    routes = variables["LAKEGATE_WATCH_ROUTES"]["Fn::If"][2]["Fn::Sub"][0].replace("${Only}", only)
    channels = variables["LAKEGATE_NOTIFY_CHANNELS"]["Fn::If"][1]["Fn::Sub"]
    routes = routes.replace("${Bucket}", "lake").replace("${LandingPrefix}", "landing/")
    arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:slack-a1b2c3"
    values = dict.fromkeys(variables, f"aws-secret:{arn}") | {
        "LAKEGATE_LOG_FORMAT": variables["LAKEGATE_LOG_FORMAT"],
        "LAKEGATE_CATALOG_URI": "http://catalog.lakegate-demo.internal:19120/api/v2",
        "LAKEGATE_CATALOG_WAREHOUSE": "s3://lake/warehouse",
        "LAKEGATE_ENGINE_URL": "sc://engine.lakegate-demo.internal:15002",
        "LAKEGATE_JOURNAL_URL": "postgresql://lakegate@database:5432/lakegate",
        "LAKEGATE_JOURNAL_MAX_CONNECTIONS": variables["LAKEGATE_JOURNAL_MAX_CONNECTIONS"],
        "LAKEGATE_JOURNAL_PARK_S": "3600",
        "LAKEGATE_S3_BUCKET_OWNER": "123456789012",
        "LAKEGATE_JOURNAL_TLS": "true",
        "LAKEGATE_WATCH_ROUTES": routes,
        "LAKEGATE_NOTIFY_CHANNELS": channels.replace("${SlackSecretArn}", arn),
    }

    settings = load_settings(tmp_path, env=values)

    assert settings.notify.channels[0].url == f"aws-secret:{arn}"
    assert Routes(settings.watch.routes or ()).table("s3://lake/landing/nyc/trips/2026/a.parquet") == "nyc.trips"
    other = Routes(settings.watch.routes or ()).table("s3://lake/landing/other/trips/2026/a.parquet")
    assert other == (None if only else "other.trips")


def test_the_schedule_calls_the_function_with_what_it_knows(template: dict[str, Any]) -> None:
    late = template["Resources"]["FunctionLate"]["Properties"]

    assert late["ScheduleExpression"] == "rate(5 minutes)"
    assert [json.loads(target["Input"]) for target in late["Targets"]] == [SCHEDULED]


def test_a_function_from_an_image_names_no_runtime(template: dict[str, Any]) -> None:
    """Lambda refuses a handler or runtime with an image, and an image with a zip."""
    function = template["Resources"]["Function"]["Properties"]
    as_image = {name: function[name]["Fn::If"][1] for name in ("PackageType", "Handler", "Runtime", "Code")}

    nothing = {"Ref": "AWS::NoValue"}
    assert as_image == {
        "PackageType": "Image",
        "Handler": nothing,
        "Runtime": nothing,
        "Code": {"ImageUri": {"Ref": "ImageUri"}},
    }
    pattern = re.compile(template["Parameters"]["ImageUri"]["AllowedPattern"])
    repository = "123456789012.dkr.ecr.eu-central-1.amazonaws.com/lakegate-demo/function"
    assert pattern.match(f"{repository}@sha256:{'a' * 64}")
    assert not pattern.match(f"{repository}:latest")


def test_the_tables_files_are_not_taken_for_files_that_landed(template: dict[str, Any]) -> None:
    """Otherwise each publish would announce files, which would be published again, forever."""
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
    """Before it creates the function, CloudFormation waits for the role but not for separate policies."""
    assert [name for name, one in template["Resources"].items() if one["Type"] == "AWS::IAM::Policy"] == []
    rights = {statement.get("Sid") for name, statement in _statements(template) if name == "FunctionRole"}

    assert {"NetworkInterfaces", "Secrets"} <= rights


def test_spark_on_fargate_runs_what_the_local_one_does(template: dict[str, Any]) -> None:
    stock = _spark_command(template, has_jars=False)
    packages = stock[stock.index("--packages") + 1].split(",")

    assert set(packages) == {f"{jar.group}:{jar.name}:{jar.version}" for jar in SPARK_JARS}
    assert template["Parameters"]["SparkImage"]["Default"] == spark_source("x86_64").base.removeprefix("docker.io/")


def test_spark_from_our_own_image_downloads_nothing(template: dict[str, Any]) -> None:
    stock, ours = (_spark_command(template, has_jars=has_jars) for has_jars in (False, True))
    asked = stock.index("--packages")

    assert ours == stock[:asked] + stock[asked + 4 :]  # --packages X --exclude-packages Y
    pull = next(one for _, one in _statements(template) if one.get("Sid") == "Pull")
    assert pull["Resource"] == {"Ref": "SparkRepository"}


def _spark_command(template: dict[str, Any], *, has_jars: bool) -> list[Any]:
    """Return Spark's command as CloudFormation resolves it: what is AWS::NoValue is left out."""
    [*_, container] = template["Resources"]["SparkTask"]["Properties"]["ContainerDefinitions"]

    def resolved(word: Any) -> Any:
        is_choice = isinstance(word, dict) and word.get("Fn::If", [""])[0] == "SparkHasJars"
        return word["Fn::If"][1 if has_jars else 2] if is_choice else word

    words = [resolved(word) for word in container["Command"]]
    return [word for word in words if word != {"Ref": "AWS::NoValue"}]


def test_nessie_on_fargate_is_set_up_as_the_one_that_was_tried(template: dict[str, Any]) -> None:
    """The compose file's setup is tested with a real Postgres. Only how it's configured differs."""
    [*_, container] = template["Resources"]["CatalogTask"]["Properties"]["ContainerDefinitions"]
    given = [one["Fn::If"][1] if "Fn::If" in one else one for one in container["Environment"]]
    ours = {one["Name"]: one["Value"] for one in given}
    store = ours.pop("NESSIE_VERSION_STORE_TYPE")
    tried = load(DEPLOY / "compose.yaml")["services"]["nessie"]

    shared = {name: value for name, value in tried["environment"].items() if name in ours and "DATASOURCE_" not in name}
    assert {name: ours[name] for name in shared} == shared
    assert len(shared) >= 3
    assert store == {"Fn::If": ["OnPostgres", tried["environment"]["NESSIE_VERSION_STORE_TYPE"], "DYNAMODB2"]}


def test_nessie_s_image_is_one_that_its_own_changelog_recommends(template: dict[str, Any]) -> None:
    name, _, tag = template["Parameters"]["CatalogImage"]["Default"].rpartition(":")

    assert f"{name}:{tag}" == load(DEPLOY / "compose.yaml")["services"]["nessie"]["image"]
    assert tuple(map(int, tag.split("."))) >= (0, 103)
    assert int(template["Resources"]["CatalogTask"]["Properties"]["Memory"]) >= 2048


@pytest.mark.parametrize(
    ("task", "service", "name", "port", "starts_in"),
    [
        ("CatalogTask", "CatalogService", "CatalogName", 9000, 60),
        ("SparkTask", "SparkService", "SparkName", 15002, 180),
    ],
)
def test_ecs_sees_whether_a_server_serves(
    template: dict[str, Any], task: str, service: str, name: str, port: int, starts_in: int
) -> None:
    """Without a health check, a task counts as healthy as soon as it runs, and `deploy` reports success."""
    resources = template["Resources"]
    [*_, container] = resources[task]["Properties"]["ContainerDefinitions"]
    check = container["HealthCheck"]

    assert check["Command"][:3] == ["CMD", "bash", "-c"]
    assert f"/dev/tcp/127.0.0.1/{port}" in check["Command"][3]
    # What ECS allows: https://docs.aws.amazon.com/AmazonECS/latest/APIReference/API_HealthCheck.html
    assert 5 <= check["Interval"] <= 300
    assert 2 <= check["Timeout"] <= 60
    assert 1 <= check["Retries"] <= 10
    assert starts_in <= check["StartPeriod"] <= 300
    # ECS hands its verdict to Cloud Map only where that keeps one.
    assert resources[name]["Properties"]["HealthCheckCustomConfig"] == {"FailureThreshold": 1}
    breaker = resources[service]["Properties"]["DeploymentConfiguration"]["DeploymentCircuitBreaker"]
    assert breaker == {"Enable": True, "Rollback": True}


def test_no_file_is_tried_before_the_servers_are_there(template: dict[str, Any]) -> None:
    """CloudFormation waits for referenced resources, even in metadata, and ECS for health checks."""
    assert {"CatalogService", "SparkService"} <= {*_references(template["Resources"]["FunctionLanded"])}


def test_nessie_on_fargate_is_asked_for_its_readiness(template: dict[str, Any]) -> None:
    """Like the compose file's, which is tested."""
    [*_, container] = template["Resources"]["CatalogTask"]["Properties"]["ContainerDefinitions"]
    tried = load(DEPLOY / "compose.yaml")["services"]["nessie"]["healthcheck"]["test"]

    assert [text.strip() for text in container["HealthCheck"]["Command"]] == [
        text.strip().replace("$$", "$") for text in tried
    ]


@pytest.mark.parametrize("group", ["CatalogGroup", "SparkGroup", "DatabaseGroup"])
def test_servers_let_in_this_stack_s_own_groups_and_no_others(template: dict[str, Any], group: str) -> None:
    rules = template["Resources"][group]["Properties"]["SecurityGroupIngress"]
    allowed = [rule["Fn::If"][1] if "Fn::If" in rule else rule for rule in rules]
    sources = [rule.get("SourceSecurityGroupId") or rule["CidrIp"] for rule in allowed]

    assert len({rule["FromPort"] for rule in allowed} | {rule["ToPort"] for rule in allowed}) == 1
    # CatalogClients: a Spark that is brought has to reach the catalog.
    assert all("Fn::GetAtt" in source or source == {"Ref": "CatalogClients"} for source in sources)
    assert {"Fn::GetAtt": ["FunctionGroup", "GroupId"]} in sources
