"""Container images on MiniStack's registry: built by an engine that is none, deployed by digest, gone with the rest.

Neither a container engine nor CodeBuild runs here; see support/fake_engine.py for the first. The stack
of CodeBuild's project is made and deleted on MiniStack; its build ends at once and pushes nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from click.testing import CliRunner, Result

from lakegate.cli.main import cli
from lakegate.integrations.aws.building import SPARK_JARS, spark_source
from lakegate.integrations.aws.clients import open_clients
from lakegate.integrations.aws.deployment import Deployment
from lakegate.local.artifacts import cache_folder, ivy_jar, java, prepare, proxy_options, trust_options
from lakegate.local.ministack import in_environment
from lakegate.model.artifacts import ivy_module
from lakegate.progress import SilentNarrator
from support import fake_engine
from support.ministack import ministack

pytestmark = pytest.mark.system

BROUGHT = (
    *("--catalog-uri", "http://127.0.0.1:19120/api/v2"),
    *("--journal-url", "postgresql://lake@127.0.0.1:5432/lake"),
)
SPARK = "lakegate-demo/spark"
FUNCTION = "lakegate-demo/function"


@pytest.fixture(scope="module")
def aws() -> Iterator[None]:
    """This process's AWS, while the module's tests run."""
    with ministack() as server, in_environment(server.environment):
        yield


@pytest.fixture
def engine(aws: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A Docker on the path, in a project of its own; Spark's jars are in the image's base already, for speed."""
    folder = tmp_path / "bin"
    fake_engine.install(folder)
    jars = folder / "root/opt/spark/jars"
    jars.mkdir(parents=True)
    shutil.copy(ivy_jar(), jars)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    yield folder
    deployment = Deployment("demo", open_clients(), SilentNarrator(), poll_s=0.1)
    deployment.destroy(deployment.survey())


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "function.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("lakegate/__init__.py", "")
    monkeypatch.setattr("lakegate.integrations.aws.package.build_package", lambda *_: path)
    return path


def _has_jars(engine: Path) -> None:
    for path in prepare(SilentNarrator(), artifacts=SPARK_JARS).values():
        (engine / "root/opt/spark/jars" / path.name).symlink_to(path)


def _run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["aws", *words], catch_exceptions=False)


def _json(*words: str) -> Any:
    done = _run(*words, "-o", "json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def _deployed(name: str) -> str:
    parameters: dict[str, str] = _json("status", "--name", "demo")["parameters"]
    return parameters.get(name, "")


@pytest.mark.jvm  # its jars are fetched by a JVM when they aren't in the cache
def test_spark_s_image_from_its_build_to_its_end(engine: Path, package: Path) -> None:
    _has_jars(engine)
    ecr: Any = boto3.client("ecr")

    network = _network()
    before = _run("plan", "--name", "demo", *network, *BROUGHT)
    assert "note: Spark runs apache/spark:4.1.4 and downloads its jars at each start" in before.stderr
    assert "lakegate aws image --name demo --architecture x86_64" in before.stderr

    built = _json("image", "--name", "demo")
    assert (built["built"], built["builder"]) == (True, "docker")
    assert built["base"] == f"apache/spark@{fake_engine.DIGEST}"
    assert built["uri"].endswith(f"/{SPARK}@{built['digest']}")
    asked = fake_engine.calls(engine)
    assert [call[0] for call in asked] == ["info", "login", "pull", "image", "build", "push", "logout"]
    assert asked[1][-1] == "True"  # by standard input: a password among the words would be seen by all
    [repository] = ecr.describe_repositories(repositoryNames=[SPARK])["repositories"]
    assert repository["imageTagMutability"] == "IMMUTABLE"
    assert repository["imageScanningConfiguration"] == {"scanOnPush": True}
    assert "imageCountMoreThan" in ecr.get_lifecycle_policy(repositoryName=SPARK)["lifecyclePolicyText"]

    again = _json("image", "--name", "demo")
    assert (again["built"], again["digest"], again["base"]) == (False, built["digest"], built["base"])
    assert len(fake_engine.calls(engine)) == len(asked)

    assert _json("deploy", "--name", "demo", *network, *BROUGHT, "--yes")["notes"] == []
    assert _deployed("SparkImage") == built["uri"]
    [task] = _tasks("spark")
    assert task["image"] == built["uri"]
    assert "--packages" not in task["command"]

    # Back to an image of one's own, and from there to the built one.
    mine = "mine/spark:4.1.4"
    _run("deploy", "--name", "demo", "--spark-image", mine, "--yes")
    assert (_deployed("SparkImage"), _deployed("SparkRepository")) == (mine, "")
    _run("deploy", "--name", "demo", "--yes")
    assert _deployed("SparkImage") == mine
    _run("deploy", "--name", "demo", "--spark-image", "", "--yes")
    assert _deployed("SparkImage") == built["uri"]

    assert SPARK in _run("destroy", "--name", "demo", "--yes").stderr
    assert ecr.describe_repositories()["repositories"] == []


def test_the_function_as_an_image_and_back(engine: Path, package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark = ("--spark-url", "sc://127.0.0.1:15002")
    functions: Any = boto3.client("lambda")

    planned = _run("plan", "--name", "demo", *BROUGHT, *spark, "--package", "image")
    assert "isn't built yet" in planned.stderr
    assert not (engine / "calls").exists()

    with monkeypatch.context() as patched:
        patched.setattr("lakegate.cli.commands.aws.confirm", lambda *_, **__: False)
        assert _json("deploy", "--name", "demo", *BROUGHT, *spark, "--package", "image")["declined"] is True
    assert not (engine / "calls").exists()
    name = _json("deploy", "--name", "demo", *BROUGHT, *spark, "--package", "image", "--yes")["outputs"]["FunctionName"]
    found = functions.get_function(FunctionName=name)
    assert found["Configuration"]["PackageType"] == "Image"
    assert found["Code"]["ImageUri"] == _deployed("ImageUri")
    assert (engine / "root/var/task/lakegate/__init__.py").is_file()
    policy = json.loads(boto3.client("ecr").get_repository_policy(repositoryName=FUNCTION)["policyText"])
    assert policy["Statement"][0]["Principal"] == {"Service": "lambda.amazonaws.com"}

    asked = len(fake_engine.calls(engine))
    assert _json("deploy", "--name", "demo", "--yes")["changed"] is False  # what it is stays, and is not built again
    assert len(fake_engine.calls(engine)) == asked

    name = _json("deploy", "--name", "demo", "--package", "zip", "--yes")["outputs"]["FunctionName"]
    assert functions.get_function(FunctionName=name)["Configuration"]["PackageType"] == "Zip"
    assert _deployed("ImageUri") == ""
    assert len(functions.list_event_source_mappings(FunctionName=name)["EventSourceMappings"]) == 1


def test_a_build_that_fails_says_why_and_where_its_log_is(
    engine: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_ENGINE_FAILS", "pull")

    done = _run("image", "--name", "demo")

    assert done.exit_code == 2
    assert "docker couldn't build" in done.stderr
    assert "pull: no such host" in done.stderr
    assert "--builder codebuild" in done.stderr
    assert fake_engine.calls(engine)[-1][0] == "logout"
    assert _run("image", "--name", "demo", "--builder", "podman").exit_code == 2


def test_codebuild_leaves_nothing_behind(engine: Path, package: Path) -> None:
    done = _run("image", "--name", "demo", "--builder", "codebuild")

    assert "was built but isn't in the repository" in done.stderr  # MiniStack's builds do nothing
    stacks = boto3.client("cloudformation").list_stacks()["StackSummaries"]
    assert [one["StackStatus"] for one in stacks if one["StackName"].startswith("build-")] == ["DELETE_COMPLETE"]
    codebuild: Any = boto3.client("codebuild")
    assert codebuild.list_projects()["projects"] == []
    [bucket] = [one["Name"] for one in boto3.client("s3").list_buckets()["Buckets"]]
    assert "Contents" not in boto3.client("s3").list_objects_v2(Bucket=bucket)


@pytest.mark.jvm
def test_missing_jars_are_fetched_and_checked(tmp_path: Path) -> None:
    """Ivy fetches them as it would in the image: with the base's own Ivy and Java, from a module file of ours."""
    small = [jar for jar in SPARK_JARS if jar.size_bytes < 400_000]
    context, jars = tmp_path / "context", tmp_path / "jars"
    jars.mkdir()
    shutil.copy(ivy_jar(), jars)
    spark_source("x86_64").write(context)
    (context / "jars.xml").write_text(ivy_module(small), encoding="utf-8")
    sums = "".join(f"{jar.sha256}  {jar.file_name}\n" for jar in small)
    (context / "jars.sha256").write_text(sums, encoding="utf-8")
    options = " ".join((*trust_options(cache_folder()), *proxy_options()))
    environment = {**os.environ, "JAVA_HOME": str(java().parent.parent), "JAVA_TOOL_OPTIONS": options}

    done = subprocess.run(
        ["/bin/sh", str(context / "fetch-jars.sh"), str(context), str(jars)],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.name for path in jars.iterdir()} == {ivy_jar().name, *(jar.file_name for jar in small)}


def _network() -> tuple[str, ...]:
    ec2 = boto3.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
    subnets = [ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.1.{n}.0/24")["Subnet"]["SubnetId"] for n in range(2)]
    return ("--vpc-id", vpc, "--subnet-ids", ",".join(subnets))


def _tasks(name: str) -> list[dict[str, Any]]:
    """Return the containers of that name, of the newest task definitions."""
    ecs: Any = boto3.client("ecs")
    arns = ecs.list_task_definitions(status="ACTIVE")["taskDefinitionArns"]
    found = (ecs.describe_task_definition(taskDefinition=arn)["taskDefinition"] for arn in arns)
    return [one for task in found for one in task["containerDefinitions"] if one["name"] == name]
