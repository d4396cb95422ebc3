"""The examples of a whole lake, for Docker Compose and Kubernetes: valid, pinned, closed, and in step with the code."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

from deploy_files import DEPLOY, ROOT, load, load_all, pod
from lakegate import __version__
from lakegate.cli.app import App
from lakegate.cli.main import cli
from lakegate.config import S3Settings, Settings
from lakegate.local.artifacts import ICEBERG, NESSIE, S3_ARTIFACTS
from lakegate.local.java import spark_version
from lakegate.local.s3 import s3_properties
from lakegate.model.references import SecretReference

COMPOSE = DEPLOY / "compose.yaml"
DOCKERFILE = DEPLOY / "Dockerfile"
VALUES = DEPLOY / "helm" / "nessie-values.yaml"
POD = DEPLOY / "kubernetes" / "watch-with-spark.yaml"
_PINNED = re.compile(r"[a-z0-9./-]+:v?\d+\.\d+(\.\d+)?[a-z0-9.-]*")


@pytest.fixture(scope="module")
def lake() -> Any:
    return load(COMPOSE)


@pytest.fixture(scope="module")
def settings(lake: Any) -> Settings:
    return Settings.model_validate(tomllib.loads(lake["configs"]["lakegate"]["content"]))


def properties(text: str) -> dict[str, str]:
    """Return Spark's settings as its properties file holds them."""
    return dict(line.split(maxsplit=1) for line in text.splitlines() if line)


def test_the_compose_file_fits_its_schema() -> None:
    program = str(Path(sys.executable).parent / "check-jsonschema")
    command = [program, "--no-cache", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_version_is_pinned_and_the_one_that_is_tested(lake: Any) -> None:
    images = {name: service["image"] for name, service in lake["services"].items()}
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [image for image in [*images.values(), *bases] if not _PINNED.fullmatch(image)] == []
    assert images["nessie"].endswith(f":{NESSIE.version}")
    assert load(VALUES)["image"]["tag"] == NESSIE.version
    assert (images["watch"], images["spark"]) == (f"lakegate:{__version__}", f"lakegate-spark:{__version__}")
    assert bases[0].startswith(f"apache/spark:{spark_version()}-")


def test_spark_has_the_jars_that_are_tested() -> None:
    modules = re.findall(r'^ +"([\w.]+ \S+ [\d.]+)"', DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert modules == [f"{jar.group} {jar.name} {jar.version}" for jar in (ICEBERG, *S3_ARTIFACTS)]


def test_what_the_images_are_built_from_is_there(lake: Any) -> None:
    text = DOCKERFILE.read_text(encoding="utf-8")
    targets = set(re.findall(r"^FROM \S+ AS (\w+)", text, re.MULTILINE))
    builds = [service["build"] for service in lake["services"].values() if "build" in service]
    assert {build["target"] for build in builds} == targets
    for build in builds:
        assert (COMPOSE.parent / build["context"]).resolve() == ROOT
        assert ROOT / build["dockerfile"] == DOCKERFILE
    copied = re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE)
    assert copied
    assert all((ROOT / name).exists() for names in copied for name in names.split())
    extras = re.findall(r'"/source\[(.+)\]"', text)
    assert extras == ["notify,postgres,s3"], "who adds a channel to the settings needs no image of his own"


def test_only_this_machine_reaches_it(lake: Any) -> None:
    services = lake["services"]
    published = [port for service in services.values() for port in service.get("ports", ())]
    assert len(published) == 3
    assert all(port.startswith("127.0.0.1:") for port in published)
    for name in ("catalog-db", "journal-db"):
        assert services[name]["networks"] == [name]
        assert lake["networks"][name] == {"internal": True}
    members = {
        network: {name for name, service in services.items() if network in service.get("networks", ())}
        for network in lake["networks"]
    }
    assert members == {
        "catalog-db": {"catalog-db", "nessie"},
        "journal-db": {"journal-db", "spark"},
        "catalog": {"nessie", "spark"},
        "objects": {"s3", "spark"},
    }
    # A token is sent without TLS to this machine only: the watcher's and Spark's are one.
    assert services["watch"]["network_mode"] == "service:spark"


def test_services_are_looked_after(lake: Any) -> None:
    services = lake["services"]
    assert {name for name, service in services.items() if "test" not in service["healthcheck"]} == {"watch"}
    for service in services.values():
        assert service["restart"] == "unless-stopped"
        assert service["security_opt"] == ["no-new-privileges:true"]
        for other, how in service.get("depends_on", {}).items():
            assert "test" in services[other]["healthcheck"]
            assert how == {"condition": "service_healthy"}


def test_the_page_makes_every_secret(lake: Any) -> None:
    page = (ROOT / "docs" / "how-to" / "deploy-a-lake.md").read_text(encoding="utf-8")
    assert set(re.findall(r'^    "([a-z0-9-]+)": ', page, re.MULTILINE)) >= set(lake["secrets"])


def test_secrets_are_files_and_nothing_else(lake: Any, settings: Settings) -> None:
    used = {name for service in lake["services"].values() for name in service.get("secrets", ())}
    assert used == set(lake["secrets"])
    assert all(secret == {"file": f"secrets/{name}"} for name, secret in lake["secrets"].items())
    for service in lake["services"].values():
        named = set(re.findall(r"/run/secrets/([\w-]+)", str(service)))
        assert named <= set(service.get("secrets", ()))
        for name, value in service.get("environment", {}).items():
            assert not re.search(r"PASSWORD|SECRET|TOKEN|KEY", name) or value.startswith("/run/secrets/")
    for reference in (settings.engine.token, settings.journal.password):
        place = Path(SecretReference.parse(str(reference)).place)
        assert place.parent == Path("/run/secrets")
        assert place.name in lake["services"]["watch"]["secrets"]


def test_what_is_named_is_what_there_is(lake: Any, settings: Settings) -> None:
    services = lake["services"]
    assert settings.catalog.uri == "http://nessie:19120/api/v2"
    assert settings.s3 == S3Settings(endpoint="http://s3:8333", region="us-east-1", path_style=True)
    assert "-s3.port=8333" in services["s3"]["command"]
    assert f"@{'journal-db'}:5432/{services['journal-db']['environment']['POSTGRES_DB']}" in str(settings.journal.url)
    spark = properties(lake["configs"]["spark"]["content"])
    assert str(settings.engine.url).endswith(f":{spark['spark.connect.grpc.binding.port']}")
    wanted = {f"spark.hadoop.{name}": value for name, value in s3_properties(settings.s3).items()}
    assert wanted.items() <= spark.items()
    root = click.Context(cli, obj=App())
    words = [word for word in services["watch"]["command"] if word not in ("--home", "/lake")]
    command = cli.get_command(root, words[0])
    assert command is not None
    assert command.make_context(words[0], words[1:], parent=root).find_object(App) is not None


@pytest.mark.parametrize("path", [COMPOSE, POD], ids=lambda path: path.name)
def test_sparks_settings_hold_no_secret(path: Path) -> None:
    text = load(COMPOSE)["configs"]["spark"]["content"] if path == COMPOSE else load_all(POD)[0]["data"]["spark.conf"]
    assert not [name for name in properties(text) if re.search(r"token|secret|password|access.key", name)]


def test_the_pods_spark_listens_to_its_own_pod_alone() -> None:
    [settings, workload] = load_all(POD)
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
    [settings, workload] = load_all(POD)
    [volume] = [volume["secret"] for volume in pod(workload)["volumes"] if "secret" in volume]
    assert volume["defaultMode"] == 0o440
    named = set(re.findall(r"/run/secrets/lakegate/([\w-]+)", POD.read_text(encoding="utf-8")))
    made = set(re.findall(r"--from-file=([\w-]+)", POD.read_text(encoding="utf-8")))
    assert named == made
    assert f"generic {volume['secretName']}" in POD.read_text(encoding="utf-8")
    assert settings["data"]["lakegate.toml"].count("file:/run/secrets/lakegate/") == 3


def test_the_charts_values_close_the_catalog() -> None:
    values = load(VALUES)
    assert values["authentication"]["enabled"] is True
    assert values["authorization"]["enabled"] is True
    page = (ROOT / "docs" / "explanation" / "security.md").read_text(encoding="utf-8")
    for name in ("lakegate", "readers"):
        assert f"rules.{name}={' '.join(values['authorization']['rules'][name].split())}\n" in page
    assert values["ingress"]["tls"][0]["hosts"] == [host["host"] for host in values["ingress"]["hosts"]]
    words = shlex.split(VALUES.read_text(encoding="utf-8").splitlines()[0].partition(": ")[2])
    assert words[words.index("--version") + 1] == NESSIE.version
