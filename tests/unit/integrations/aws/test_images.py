"""The sources of container images, and the scripts that build them, run for real where no engine is needed."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess
import zipfile
from pathlib import Path
from unittest.mock import MagicMock
from xml.etree import ElementTree as ET

import pytest

from lakegate.integrations.aws import building
from lakegate.integrations.aws.building import (
    BUILDER_TEMPLATE,
    CONTAINER,
    PLATFORMS,
    SPARK_JARS,
    ImageBuilder,
    function_source,
    new_tag,
    spark_source,
)
from lakegate.integrations.aws.clients import DeploymentName
from lakegate.integrations.aws.package import strip_symbols
from lakegate.model.artifacts import ARTIFACTS, ICEBERG, NESSIE, S3_ARTIFACTS
from lakegate.progress import SilentNarrator
from support import fake_engine
from support.deploy_files import load_template

SPARK_VERSION = "4.1.4"


@pytest.fixture
def zipped(tmp_path: Path) -> Path:
    path = tmp_path / "function.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("lakegate/__init__.py", "")
        archive.writestr("lakegate.toml", "")
    return path


def _build(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    given = {
        "ENGINE": "docker",
        "PLATFORM": "linux/arm64",
        "BASE": "docker.io/apache/spark:4.1.4",
        "IMAGE": "here/demo/spark:1",
    }
    path = f"{folder.parent / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["/bin/sh", "build.sh"],
        cwd=folder,
        env={**os.environ, "PATH": path, **given, **variables},
        check=False,
        capture_output=True,
        text=True,
    )


def test_spark_s_image_has_the_jars_of_the_local_stack(tmp_path: Path) -> None:
    """One pin in two places: the image has the same S3 jars as the local Spark."""
    spark_source("x86_64").write(tmp_path)

    lines = [line.split() for line in (tmp_path / "jars.sha256").read_text(encoding="utf-8").splitlines()]
    local = {one for one in (*ARTIFACTS, *S3_ARTIFACTS) if one != NESSIE}
    assert {name: digest for digest, name in lines} == {one.file_name: one.sha256 for one in local}
    asked = ET.parse(tmp_path / "jars.xml").getroot().findall("./dependencies/dependency")
    assert {(one.get("name"), one.get("rev"), one.get("transitive")) for one in asked} == {
        (one.name, one.version, "false") for one in SPARK_JARS
    }


def test_bases_are_those_that_lakegate_is_tested_with(zipped: Path) -> None:
    assert spark_source("x86_64").base.endswith(f"/spark:{SPARK_VERSION}")
    assert ICEBERG.name.startswith(f"iceberg-spark-runtime-{SPARK_VERSION.rpartition('.')[0]}_")
    assert function_source("arm64", "3.13", zipped).base.endswith("/lambda/python:3.13")
    assert spark_source("x86_64", "mine/spark@sha256:1").base == "mine/spark@sha256:1"


def test_a_tag_says_what_is_in_an_image(zipped: Path) -> None:
    here, there = spark_source("x86_64"), spark_source("arm64")
    assert here.stem != there.stem
    # Another base of the same version is a newer image of the same content.
    assert here.stem == spark_source("x86_64", "elsewhere/spark:4.1.4").stem
    assert re.fullmatch(r"[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}", new_tag(here))
    before = function_source("x86_64", "3.12", zipped).stem
    with zipfile.ZipFile(zipped, "a") as archive:
        archive.writestr("more", "")
    assert function_source("x86_64", "3.12", zipped).stem != before


def test_the_script_pins_the_base_builds_and_pushes(tmp_path: Path, zipped: Path) -> None:
    fake_engine.install(tmp_path / "bin")
    folder = tmp_path / "context"
    function_source("arm64", "3.12", zipped).write(folder)

    done = _build(folder, FAKE_ENGINE_FAILS="push")

    assert done.returncode != 0  # what fails last fails all
    asked = fake_engine.calls(tmp_path / "bin")
    pinned = f"apache/spark@{fake_engine.DIGEST}"
    assert [call[0] for call in asked] == ["pull", "image", "build", "push"]
    assert asked[0] == ["pull", "--platform", "linux/arm64", "docker.io/apache/spark:4.1.4"]
    build = asked[2]
    assert build[build.index("--build-arg") + 1] == f"BASE={pinned}"
    assert f"org.opencontainers.image.base.digest={fake_engine.DIGEST}" in build
    assert build[build.index("--platform") + 1] == "linux/arm64"
    assert asked[3] == ["push", "here/demo/spark:1"]
    assert sorted(path.name for path in (tmp_path / "bin/root/var/task").iterdir()) == ["lakegate", "lakegate.toml"]


def test_a_base_that_is_a_digest_already_is_taken_as_it_is(tmp_path: Path, zipped: Path) -> None:
    fake_engine.install(tmp_path / "bin")
    folder = tmp_path / "context"
    function_source("arm64", "3.12", zipped).write(folder)
    pinned = "docker.io/apache/spark@sha256:" + "c" * 64

    _build(folder, BASE=pinned, FAKE_ENGINE_FAILS="push")

    asked = fake_engine.calls(tmp_path / "bin")
    assert [call[0] for call in asked] == ["pull", "build", "push"]
    assert f"BASE={pinned}" in asked[1]


def test_each_dockerfile_takes_its_base_from_the_script() -> None:
    for path in CONTAINER.glob("*.Dockerfile"):
        steps = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
        assert steps[0].startswith("ARG BASE="), path
        assert steps[1] == "FROM ${BASE}", path
        assert not re.search(r"\b(curl|wget|ADD http|pip install|apt-get)\b", "\n".join(steps)), path


def _fetch(folder: Path, jars: Path) -> subprocess.CompletedProcess[str]:
    command = ["sh", str(CONTAINER / "fetch-jars.sh"), str(folder), str(jars)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_a_jar_that_is_not_the_one_that_was_tested_ends_the_build(tmp_path: Path) -> None:
    folder, jars = tmp_path / "folder", tmp_path / "jars"
    folder.mkdir()
    jars.mkdir()
    (folder / "jars.sha256").write_text(f"{hashlib.sha256(b'right').hexdigest()}  a.jar\n", encoding="utf-8")
    (folder / "jars.xml").write_text("", encoding="utf-8")
    (jars / "a.jar").write_bytes(b"right")

    assert (_fetch(folder, jars).returncode, _fetch(folder, jars).stdout) == (0, "a.jar: OK\n")
    (jars / "a.jar").write_bytes(b"wrong")
    assert _fetch(folder, jars).returncode != 0


def test_a_library_is_stripped_without_touching_what_it_is_linked_to(tmp_path: Path) -> None:
    """uv links the files it installs to its cache and other environments."""
    header = bytearray(64)
    header[:6], header[32:40], header[40:48] = b"\x7fELF\x02\x01", (64).to_bytes(8, "little"), b"\1" * 8
    header[54:56], header[56:58] = (56).to_bytes(2, "little"), (1).to_bytes(2, "little")
    segment = bytes(8) + (0).to_bytes(8, "little") + bytes(16) + (130).to_bytes(8, "little") + bytes(16)
    cached, installed = tmp_path / "cached.so", tmp_path / "installed.so"
    content = bytes(header) + segment + b"loaded....symbols"
    cached.write_bytes(content)
    installed.hardlink_to(cached)

    assert strip_symbols(installed) == len(content) - 130

    assert cached.read_bytes() == content
    kept = installed.read_bytes()
    assert (kept[:40], kept[40:48], kept[64:]) == (content[:40], bytes(8), content[64:130])
    assert strip_symbols(installed) == 0


def test_scripts_are_plain_sh() -> None:
    for path in CONTAINER.glob("*.sh"):
        assert subprocess.run(["/bin/sh", "-n", path], check=False).returncode == 0, path


def test_the_builder_may_push_to_its_repository_and_read_its_source_alone() -> None:
    template = load_template(BUILDER_TEMPLATE)
    [policy] = template["Resources"]["Role"]["Properties"]["Policies"]
    statements = {one["Sid"]: one for one in policy["PolicyDocument"]["Statement"]}

    assert [sid for sid, one in statements.items() if one["Resource"] == "*"] == ["SignIn"]
    assert statements["SignIn"]["Action"] == "ecr:GetAuthorizationToken"
    assert not [sid for sid, one in statements.items() if "*" in str(one["Action"])]


def test_codebuild_runs_the_script_that_a_laptop_does() -> None:
    project = load_template(BUILDER_TEMPLATE)["Resources"]["Project"]["Properties"]
    given = {one["Name"]: one["Value"] for one in project["Environment"]["EnvironmentVariables"]}
    script = (CONTAINER / "build.sh").read_text(encoding="utf-8")

    assert given.keys() == set(re.findall(r"^# ([A-Z]+) ", script, re.MULTILINE))
    assert "- sh build.sh" in project["Source"]["BuildSpec"]
    assert given["PLATFORM"] == {"Fn::If": ["OnArm", PLATFORMS["arm64"], PLATFORMS["x86_64"]]}
    assert project["Environment"]["Type"] == {"Fn::If": ["OnArm", "ARM_CONTAINER", "LINUX_CONTAINER"]}
    assert project["Environment"]["PrivilegedMode"] is True


def test_an_interrupt_while_signing_in_to_the_registry_signs_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []

    def run(words: list[str], **_: object) -> None:
        called.append(words[1])
        if words[1] == "login":
            raise KeyboardInterrupt

    for name in ("Data", "Repository"):
        monkeypatch.setattr(building, name, MagicMock())
    monkeypatch.setattr(building, "_engine", lambda wanted: wanted)
    monkeypatch.setattr(subprocess, "run", run)
    clients = MagicMock()
    token = base64.b64encode(b"AWS:password").decode()
    clients.ecr.get_authorization_token.return_value = {"authorizationData": [{"authorizationToken": token}]}
    builder = ImageBuilder(DeploymentName("demo"), clients, SilentNarrator(), tmp_path)
    with pytest.raises(KeyboardInterrupt):
        builder.build(spark_source("x86_64"), "docker")
    assert called == ["login", "logout"]
