"""The examples of a whole lake on Kubernetes: Nessie by its own chart, and lakegate."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import click
import pytest
from jsonschema import Draft7Validator
from ruamel.yaml import YAML

from lakegate import __version__
from lakegate.cli.app import App
from lakegate.cli.main import cli
from lakegate.config import Settings
from lakegate.dashboard.ui.access import decide_access
from lakegate.gate.access import OPEN_PATHS
from support.deploy_files import DEPLOY, NESSIE_VERSION, ROOT, configured, load, load_all, pod, properties

VALUES = DEPLOY / "helm" / "nessie-values.yaml"
CHART = DEPLOY / "helm" / "lakegate"
POD = DEPLOY / "kubernetes" / "watch-with-spark.yaml"
_RENDER = ("template", "lakegate-with-spark", str(CHART.relative_to(ROOT)))
_HELM = shutil.which("helm") or ""
needs_helm = pytest.mark.skipif(not _HELM, reason="needs helm")


def test_nessies_values_close_the_catalog() -> None:
    values = load(VALUES)
    assert values["authentication"]["enabled"] is True
    assert values["authorization"]["enabled"] is True
    page = (ROOT / "docs" / "explanation" / "security.md").read_text(encoding="utf-8")
    for name in ("lakegate", "readers"):
        assert f"rules.{name}={' '.join(values['authorization']['rules'][name].split())}\n" in page
    gateway = values["gatewayApi"]
    assert "ingress" not in values
    [listener] = gateway["gateway"]["listeners"]
    assert (listener["protocol"], listener["tls"]["enabled"]) == ("HTTPS", True)
    [route] = gateway["httpRoutes"]
    assert route["hostnames"] == [listener["hostname"]]
    assert values["resources"]["limits"]["memory"] == "2Gi"
    words = shlex.split(VALUES.read_text(encoding="utf-8").splitlines()[0].partition(": ")[2])
    assert words[words.index("--version") + 1] == values["image"]["tag"] == NESSIE_VERSION
    template = (DEPLOY / "aws" / "template.yaml").read_text(encoding="utf-8")
    assert re.findall(r"projectnessie/nessie:(\S+)", template) == [NESSIE_VERSION]


def test_nessie_is_given_what_to_check_its_databases_certificate_against() -> None:
    values = load(VALUES)
    asked = parse_qs(urlsplit(values["jdbc"]["jdbcUrl"].removeprefix("jdbc:")).query)
    assert asked["sslmode"] == ["verify-full"]
    # Without either, Postgres's driver looks for ~/.postgresql/root.crt, which no image has.
    assert "sslrootcert" in asked or asked["sslfactory"] == ["org.postgresql.ssl.DefaultJavaSSLFactory"]
    [mount] = values["extraVolumeMounts"]
    assert asked["sslrootcert"] == [f"{mount['mountPath']}/ca.crt"]
    assert [volume["name"] for volume in values["extraVolumes"]] == [mount["name"]]


def test_sparks_settings_hold_no_secret() -> None:
    settings = properties(configured(load_all(POD))[0]["data"]["spark.conf"])
    assert not [name for name in settings if re.search(r"token|secret|password|access.key", name)]


def test_the_pods_spark_listens_to_its_own_pod_alone() -> None:
    settings, workload = configured(load_all(POD))
    spark = properties(settings["data"]["spark.conf"])
    addresses = {
        spark[f"spark.{name}"] for name in ("connect.grpc.binding.address", "driver.bindAddress", "driver.host")
    }
    assert addresses == {"127.0.0.1"}
    [sidecar] = pod(workload)["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["image"].endswith(f"lakegate-spark:{__version__}")
    inner = sidecar["securityContext"]
    assert (inner["allowPrivilegeEscalation"], inner["readOnlyRootFilesystem"]) == (False, True)
    assert inner["capabilities"] == {"drop": ["ALL"]}
    [token] = [variable for variable in sidecar["env"] if "TOKEN" in variable["name"]]
    assert "valueFrom" in token
    engine = tomllib.loads(settings["data"]["lakegate.toml"])["engine"]
    assert engine["url"] == f"sc://localhost:{spark['spark.connect.grpc.binding.port']}"


def test_the_pods_secrets_are_files_of_one_mount() -> None:
    settings, workload = configured(load_all(POD))
    [volume] = [volume["secret"] for volume in pod(workload)["volumes"] if "secret" in volume]
    assert volume["defaultMode"] == 0o440
    named = set(re.findall(r"/run/secrets/lakegate/([\w-]+)", POD.read_text(encoding="utf-8")))
    made = set(re.findall(r"--from-file=([\w-]+)", POD.read_text(encoding="utf-8")))
    assert named == made
    assert f"generic {volume['secretName']}" in POD.read_text(encoding="utf-8")
    assert settings["data"]["lakegate.toml"].count("file:/run/secrets/lakegate/") == 3


@pytest.fixture(scope="module")
def schema() -> Draft7Validator:
    content = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    Draft7Validator.check_schema(content)
    return Draft7Validator(content)


def changed(values: Any, place: str, value: object) -> Any:
    """Return ``values`` with one changed, whose place is written as Helm's ``--set`` has it."""
    *way, last = place.split(".")
    inner = values
    for name in way:
        inner = inner[name]
    inner[last] = value
    return values


def test_the_chart_is_of_this_release_and_its_defaults_fit_its_schema(schema: Draft7Validator) -> None:
    chart = load(CHART / "Chart.yaml")
    assert (chart["name"], chart["version"], chart["appVersion"]) == ("lakegate", __version__, __version__)
    values = load(CHART / "values.yaml")
    assert [error.message for error in schema.iter_errors(values)] == []
    # What a template asks for has a default, and what has a default is asked for.
    text = "".join(path.read_text(encoding="utf-8") for path in (CHART / "templates").iterdir())
    assert {name.split(".")[0] for name in re.findall(r"\.Values\.([\w.]+)", text)} == set(values)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("watch.paths", []),
        ("watch.paths", ["/srv/landing"]),
        ("watch.table", "trips"),
        ("watch.every", "5 minutes"),
        ("image.tag", "latest"),
        ("env.NESSIE_TOKEN", "abc"),
        ("spark.conf", {"spark.hadoop.fs.s3a.secret.key": "abc"}),
        ("spark.memory", "4"),
        ("resources.limits", {"cpu": "1"}),
        ("dashboard.enabled", "yes"),
        ("dashboard.options", "--allow-actions"),
        ("dashboard.resources", {}),
        ("serve.replicas", 0),
        ("serve.tokenKey", ""),
        ("terminationGracePeriodSeconds", 0),
        ("watsh", {}),
    ],
    ids=str,
)
def test_the_schema_refuses(schema: Draft7Validator, place: str, value: object) -> None:
    assert list(schema.iter_errors(changed(load(CHART / "values.yaml"), place, value)))


def test_the_manifest_for_clusters_without_helm_is_the_chart_as_it_is_now() -> None:
    digest = hashlib.sha256()
    templates = sorted(path for path in (CHART / "templates").iterdir() if path.name != "NOTES.txt")
    for path in [CHART / "Chart.yaml", *templates, CHART / "values.yaml"]:
        digest.update(path.relative_to(CHART).as_posix().encode() + b"\0" + path.read_bytes())
    said = re.findall(r"^# ([0-9a-f]{64})\.$", POD.read_text(encoding="utf-8"), re.MULTILINE)
    assert said == [digest.hexdigest()], f"render it again: helm {' '.join(_RENDER)}"


def rendered(*words: str) -> list[Any]:
    done = subprocess.run([_HELM, *_RENDER, *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return [one for one in YAML(typ="safe").load_all(done.stdout) if one]


@needs_helm
def test_helm_renders_the_manifest() -> None:
    assert rendered() == load_all(POD)


@needs_helm
def test_the_pod_is_what_the_values_say(tmp_path: Path) -> None:
    values = load(CHART / "values.yaml")
    settings = values["settings"].replace("sc://localhost:15002", "sc://spark.example.com:15002")
    given = {
        "settings": settings,
        "spark": {"enabled": False},
        "awsCredentials": "",
        "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/lake"}},
        "watch": {"table": "", "options": ["--route", "s3://landing/{table}/* => nyc.{table}"]},
        "nodeSelector": {"disk": "ssd"},
    }
    file = tmp_path / "values.yaml"
    file.write_text(json.dumps(given), encoding="utf-8")
    account, configuration, workload = rendered("--values", str(file))
    assert account["metadata"]["annotations"] == given["serviceAccount"]["annotations"]
    assert list(configuration["data"]) == ["lakegate.toml"]
    assert tomllib.loads(configuration["data"]["lakegate.toml"]) == tomllib.loads(settings)
    spec = pod(workload)
    assert "initContainers" not in spec
    assert spec["nodeSelector"] == {"disk": "ssd"}
    [container] = spec["containers"]
    assert container["args"][-2:] == given["watch"]["options"]
    assert "--table" not in container["args"]
    assert "AWS_SHARED_CREDENTIALS_FILE" not in {variable["name"] for variable in container["env"]}
    with pytest.raises(AssertionError, match=r"must say \[engine\] url"):
        rendered("--set-string", "settings=[engine]")


_LOGIN = """
[ui]
url = "https://lake.example.com"
oidc_metadata_url = "https://id.example.com/realms/lake/.well-known/openid-configuration"
oidc_client_id = "lakegate-ui"
oidc_client_secret = "file:/run/secrets/lakegate/ui-client-secret"
cookie_secret = "file:/run/secrets/lakegate/ui-cookie-secret"
"""


@needs_helm
def test_the_dashboard_comes_up_behind_a_login(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="how people log in"):
        rendered("--set", "dashboard.enabled=true")
    file = tmp_path / "values.yaml"
    values = load(CHART / "values.yaml")
    dashboard = {"enabled": True, "options": ["--allow-actions"]}
    file.write_text(json.dumps({"settings": values["settings"] + _LOGIN, "dashboard": dashboard}), encoding="utf-8")
    _, configuration, service, *workloads = rendered("--values", str(file))
    settings = Settings.model_validate(tomllib.loads(configuration["data"]["lakegate.toml"]))
    [watch] = [one for one in workloads if not one["metadata"]["name"].endswith("-dashboard")]
    [shown] = [one for one in workloads if one["metadata"]["name"].endswith("-dashboard")]
    selector = shown["spec"]["selector"]["matchLabels"]
    assert service["spec"]["selector"] == selector
    # Neither Deployment takes the other's pods for its own.
    assert selector["app.kubernetes.io/name"] != watch["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"]
    spec = pod(shown)
    assert "initContainers" not in spec
    assert spec["automountServiceAccountToken"] is False
    [container] = spec["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
    words = container["args"][2:]
    command = cli.get_command(root := click.Context(cli, obj=App()), words[0])
    assert command is not None
    asked = command.make_context(words[0], words[1:], parent=root).params
    assert decide_access(settings.ui, asked["host"], allow_actions=asked["allow_actions"]).login
    assert [port["containerPort"] for port in container["ports"]] == [asked["port"]]
    *_, with_spark = (one for one in rendered("--values", str(file), "--set", "dashboard.spark=true"))
    names = [[one["name"] for one in pod(with_spark).get(kind, ())] for kind in ("initContainers", "containers")]
    assert names in ([["spark"], ["dashboard"]], [["spark"], ["lakegate"]])
    with pytest.raises(AssertionError, match=r"dashboard\.spark needs"):
        rendered("--values", str(file), "--set", "dashboard.spark=true", "--set", "spark.enabled=false")


@needs_helm
def test_readers_have_a_service_that_asks_for_the_token() -> None:
    *_, service, shown = (one for one in rendered("--set", "serve.enabled=true") if "-serve" in one["metadata"]["name"])
    selector = shown["spec"]["selector"]["matchLabels"]
    assert service["spec"]["selector"] == selector
    assert selector["app.kubernetes.io/name"] == "lakegate-serve"
    spec = pod(shown)
    assert spec["automountServiceAccountToken"] is False
    [container] = spec["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
    words = container["args"][2:]
    command = cli.get_command(root := click.Context(cli, obj=App()), words[0])
    assert command is not None
    asked = command.make_context(words[0], words[1:], parent=root).params
    assert asked["token"] == "file:/run/secrets/lakegate/reader-token"
    assert [port["containerPort"] for port in container["ports"]] == [asked["port"]]
    assert {container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("readiness", "liveness")} <= set(OPEN_PATHS)
