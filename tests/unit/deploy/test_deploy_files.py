"""The examples for schedulers: they fit their schemas, name commands that exist, and leak nothing."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

from lakegate import __version__
from lakegate.cli.app import App
from lakegate.cli.main import cli
from lakegate.config import JournalSettings, Settings, load_settings
from lakegate.errors import ConfigurationError, ExitCode
from lakegate.integrations.dbos.configuration import load_configuration
from support.deploy_files import (
    ACTION,
    DEPLOY,
    MANIFESTS,
    ROOT,
    UNITS,
    commands,
    configured,
    cron_lines,
    load,
    load_all,
    pod,
    workloads,
)

BIN = Path(sys.executable).parent
LAKEGATE = "/opt/lakegate/bin/lakegate"
WORKFLOW = DEPLOY / "github" / "workflow.yml"
_FIELD = re.compile(r"\*(/\d+)?|\d+(-\d+)?(,\d+(-\d+)?)*")
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


def accept(*command: str | Path) -> None:
    """Hold a checking program to having found nothing."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_every_command_is_one_that_lakegate_takes(words: list[str], tmp_path: Path) -> None:
    here = [str(tmp_path) if word in ("/srv/lake", "/lake") else word for word in words]
    name = next(word for word in here if word in cli.summaries)
    root = click.Context(cli, obj=App())
    command = cli.get_command(root, name)
    assert command is not None
    place = here.index(name)
    # Global options may stand behind the name as well.
    parsed = command.make_context(name, [*here[:place], *here[place + 1 :]], parent=root)
    assert parsed.find_object(App) is not None


@pytest.mark.parametrize(
    ("schema", "path"), [("vendor.github-actions", ACTION), ("vendor.github-workflows", WORKFLOW)], ids=str
)
def test_the_action_and_its_workflow_fit_their_schemas(schema: str, path: Path) -> None:
    accept(BIN / "check-jsonschema", "--no-cache", "--builtin-schema", schema, path)


def test_the_workflow_gives_the_action_what_it_takes() -> None:
    action = load(ACTION)
    steps = load(WORKFLOW)["jobs"]["ingest"]["steps"]
    [used] = [step for step in steps if step.get("id") == "lakegate"]
    required = {name for name, given in action["inputs"].items() if given.get("required")}
    assert required <= set(used["with"]) <= set(action["inputs"])
    assert used["uses"].endswith(f"@v{__version__}")
    asked = set(re.findall(r"steps\.lakegate\.outputs\.([\w-]+)", WORKFLOW.read_text(encoding="utf-8")))
    assert asked <= set(action["outputs"])


def test_dbos_is_given_what_the_example_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBOS_PASSWORD", "p%40ss")  # encoded there, as the file says
    config = load_configuration(DEPLOY / "dbos" / "dbos-config.yaml", home=ROOT, journal=JournalSettings()).dbos
    assert config["system_database_url"] == "postgresql://lakegate:p%40ss@db.example.com:5432/lake"
    assert (config["sys_db_pool_size"], config["max_executor_threads"]) == (10, 16)


def test_prefects_deployments_are_flows_that_take_what_they_are_given() -> None:
    for deployment in load(DEPLOY / "prefect" / "prefect.yaml")["deployments"]:
        module, _, name = deployment["entrypoint"].partition(":")
        flow = getattr(importlib.import_module(module), name)
        given = {**deployment["parameters"]}
        for trigger in deployment.get("triggers", ()):
            given |= trigger["parameters"]
        assert set(given) <= set(flow.parameters.properties), deployment["name"]
        assert set(flow.parameters.required) <= set(given), deployment["name"]


@pytest.mark.parametrize("path", [ACTION, WORKFLOW], ids=str)
def test_nothing_is_pasted_into_a_script(path: Path) -> None:
    told = load(path)
    steps = told["runs"]["steps"] if path == ACTION else told["jobs"]["ingest"]["steps"]
    scripts = [step["run"] for step in steps if "run" in step]
    assert scripts
    assert not [script for script in scripts if "${{" in script]


def test_cron_lines_are_five_fields_and_a_command() -> None:
    lines = list(cron_lines())
    assert len(lines) == 3
    for fields, command in lines:
        for field, (low, high) in zip(fields, _RANGES, strict=True):
            assert _FIELD.fullmatch(field), field
            assert all(low <= int(number) <= high for number in re.findall(r"(?<!/)\b\d+", field)), field
        assert command.startswith("lakegate ")
        assert "%" not in command, "cron takes it for the end of the line"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_takes_the_units(path: Path, tmp_path: Path) -> None:
    for one in UNITS:
        text = one.read_text(encoding="utf-8").replace(LAKEGATE, str(BIN / "lakegate"))
        (tmp_path / one.name).write_text(text, encoding="utf-8")
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / path.name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    # It says what it ignores, and calls that no error.
    told = [line for line in done.stderr.splitlines() if str(tmp_path) in line or "lakegate" in line]
    assert (done.returncode, told) == (0, [])


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_fit_the_schemas_of_kubernetes(path: Path) -> None:
    accept(BIN / "kubernetes-validate", "--strict", path)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_bring_settings_that_are_valid(path: Path) -> None:
    settings, workload = configured(load_all(path))
    content = tomllib.loads(settings["data"]["lakegate.toml"])
    Settings.model_validate(content)
    [container] = pod(workload)["containers"]
    given = {variable["name"] for variable in container["env"]}
    asked = set(re.findall(r"env:(\w+)", settings["data"]["lakegate.toml"]))
    assert asked <= given
    volumes = {volume["name"]: volume for volume in pod(workload)["volumes"]}
    assert volumes["settings"]["configMap"]["name"] == settings["metadata"]["name"]
    containers = [container, *pod(workload).get("initContainers", ())]
    assert {mount["name"] for one in containers for mount in one["volumeMounts"]} == set(volumes)


@pytest.mark.parametrize("workload", list(workloads()), ids=lambda one: one["kind"])
def test_pods_may_do_little_and_end_gently(workload: Any) -> None:
    spec = pod(workload)
    [container] = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["automountServiceAccountToken"] is False
    assert spec["terminationGracePeriodSeconds"] >= 600
    inner = container["securityContext"]
    assert (inner["allowPrivilegeEscalation"], inner["readOnlyRootFilesystem"]) == (False, True)
    assert inner["capabilities"] == {"drop": ["ALL"]}
    assert {"cpu", "memory"} == set(container["resources"]["limits"])
    for variable in container["env"]:
        secret = re.search(r"TOKEN|PASSWORD|SECRET|ACCESS_KEY", variable["name"])
        assert ("valueFrom" in variable) is (secret is not None), variable["name"]


def test_no_service_of_the_cluster_is_taken_for_a_setting(tmp_path: Path) -> None:
    # What Kubernetes sets in a pod for a service called lakegate-serve, unless the pod doesn't want that.
    links = {"LAKEGATE_SERVE_PORT": "tcp://10.96.12.1:80", "LAKEGATE_SERVE_SERVICE_HOST": "10.96.12.1"}
    with pytest.raises(ConfigurationError, match=r"unknown key 'serve\.service_host'"):
        load_settings(tmp_path, env=links)
    for workload in workloads():
        assert pod(workload)["enableServiceLinks"] is False, workload["metadata"]["name"]


def test_pods_fill_no_nodes_disk() -> None:
    for workload in workloads():
        scratch = [volume["emptyDir"] for volume in pod(workload)["volumes"] if "emptyDir" in volume]
        assert scratch
        assert all("sizeLimit" in volume for volume in scratch), workload["metadata"]["name"]


def test_a_look_that_hangs_or_loses_its_node_keeps_no_later_one_from_starting() -> None:
    [cron] = [one["spec"] for one in workloads() if one["kind"] == "CronJob"]
    job = cron["jobTemplate"]["spec"]
    assert cron["concurrencyPolicy"] == "Forbid"
    assert job["activeDeadlineSeconds"] > pod({"kind": "CronJob", "spec": cron})["terminationGracePeriodSeconds"]
    fails, ignored = job["podFailurePolicy"]["rules"]
    assert (fails["action"], fails["onExitCodes"]["values"]) == ("FailJob", [ExitCode.AUDIT_FAILED, ExitCode.USAGE])
    assert ignored == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def test_the_images_version_is_this_one() -> None:
    for workload in workloads():
        assert pod(workload)["containers"][0]["image"].endswith(f":{__version__}")
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert f"lakegate:{__version__} ." in dockerfile
    copied = re.findall(r"^COPY (.+) \S+$", dockerfile, re.MULTILINE)
    assert all((ROOT / name).exists() for names in copied for name in names.split())
