"""The example of a whole lake for Docker Compose: valid, pinned, closed, and in step with the code."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

from lakegate import __version__
from lakegate.cli.app import App
from lakegate.cli.commands.serve import serve
from lakegate.cli.main import cli
from lakegate.config import S3Settings, ServeSettings, Settings
from lakegate.local.artifacts import spark_version
from lakegate.local.stores import s3_properties
from lakegate.model.artifacts import ICEBERG, S3_ARTIFACTS
from lakegate.model.secrets import SecretReference, is_loopback
from support.compose_rules import faults, megabytes
from support.deploy_files import DEPLOY, NESSIE_VERSION, ROOT, load, properties

COMPOSE = DEPLOY / "compose.yaml"
DOCKERFILE = DEPLOY / "Dockerfile"
_PINNED = re.compile(r"[a-z0-9./-]+:v?\d+\.\d+(\.\d+)?[a-z0-9.-]*")
# Who may be reached by whom: a network has no other members.
_MEMBERS = {
    "catalog-db": {"catalog-db", "nessie"},
    "journal-db": {"journal-db", "pod", "serve"},
    "catalog": {"nessie", "pod", "serve"},
    "objects": {"s3", "pod", "serve"},
}


@pytest.fixture(scope="module")
def lake() -> Any:
    return load(COMPOSE)


@pytest.fixture(scope="module")
def settings() -> Settings:
    return Settings.model_validate(tomllib.loads((DEPLOY / "compose" / "lakegate.toml").read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def spark() -> dict[str, str]:
    return properties((DEPLOY / "compose" / "spark.conf").read_text(encoding="utf-8"))


def test_the_compose_file_fits_its_schema() -> None:
    program = str(Path(sys.executable).parent / "check-jsonschema")
    command = [program, "--no-cache", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_compose_and_the_engine_take_it(lake: Any) -> None:
    assert faults(lake, DEPLOY) == []


def test_memory_is_enough_and_no_more_than_is_said(lake: Any, spark: dict[str, str]) -> None:
    limits = {name: megabytes(service["mem_limit"]) for name, service in lake["services"].items()}
    assert limits["nessie"] == 2048
    assert limits["spark"] >= megabytes(spark["spark.driver.memory"]) + 1536, "room beside the heap"
    [said] = re.findall(r"takes (\d+) GB of memory", COMPOSE.read_text(encoding="utf-8"))
    assert round(sum(limits.values()) / 1024) == int(said)


def test_the_watcher_has_room_for_copies_of_files_that_spark_does_not_read(lake: Any) -> None:
    watch = lake["services"]["watch"]
    (size,) = (re.findall(r"\bsize=(\w+)", one)[0] for one in watch["tmpfs"] if one.startswith("/lake/.lakegate:"))
    assert megabytes(size) >= 1024
    assert megabytes(watch["mem_limit"]) >= megabytes(size) + 1024, "what's in it counts as the container's memory"


def test_every_version_is_pinned(lake: Any) -> None:
    images = {name: service["image"] for name, service in lake["services"].items()}
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [image for image in [*images.values(), *bases] if not _PINNED.fullmatch(image)] == []
    assert images["nessie"].endswith(f":{NESSIE_VERSION}")
    assert images["watch"] == images["dashboard"] == images["serve"] == f"lakegate:{__version__}"
    assert images["spark"] == f"lakegate-spark:{__version__}"
    assert bases[0].startswith(f"apache/spark:{spark_version()}-")


def test_spark_has_the_jars_that_are_tested() -> None:
    jars = re.findall(r"^ +'([\w.]+ \S+ [\d.]+ \w+)'", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert jars == [f"{jar.group} {jar.name} {jar.version} {jar.sha256}" for jar in (ICEBERG, *S3_ARTIFACTS)]


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
    # The builder is given these alone.
    given = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert {f"!{name}" for names in copied for name in names.split()} <= set(given)
    extras = re.findall(r'"/source\[(.+)\]"', text)
    assert extras == ["notify,postgres,s3,serve,ui"], "who adds a channel to the settings needs no image of his own"


def test_only_this_machine_reaches_it(lake: Any) -> None:
    services = lake["services"]
    published = [port for service in services.values() for port in service.get("ports", ())]
    assert len(published) == 5
    assert all(port.startswith("127.0.0.1:") for port in published)
    for name in ("catalog-db", "journal-db"):
        assert services[name]["networks"] == [name]
        assert lake["networks"][name] == {"internal": True}
    members = {
        network: {name for name, service in services.items() if network in service.get("networks", ())}
        for network in lake["networks"]
    }
    assert members == _MEMBERS
    # A token is sent without TLS to this machine only: the watcher's and Spark's are one.
    sharing = {name for name, service in services.items() if service.get("network_mode") == "service:pod"}
    assert sharing == {"dashboard", "login", "spark", "watch"}


def test_services_are_looked_after(lake: Any) -> None:
    services = lake["services"]
    asked = {name for name, service in services.items() if "test" in service.get("healthcheck", {})}
    assert set(services) - asked == {"pod", "watch"}
    for service in services.values():
        assert service["restart"] == "unless-stopped"
        assert service["security_opt"] == ["no-new-privileges:true"]


def test_the_page_makes_every_secret(lake: Any) -> None:
    page = (ROOT / "docs" / "how-to" / "deploy-a-lake.md").read_text(encoding="utf-8")
    assert set(re.findall(r'^    "([a-z0-9-]+)": ', page, re.MULTILINE)) >= set(lake["secrets"])


def mounted(service: Any) -> dict[str, str]:
    """Return a service's secrets by the names of their files below ``/run/secrets``."""
    secrets: list[dict[str, str]] = [
        one if isinstance(one, dict) else {"source": one} for one in service.get("secrets", ())
    ]
    return {one.get("target", one["source"]): one["source"] for one in secrets}


def test_secrets_are_files_and_nothing_else(lake: Any, settings: Settings) -> None:
    used = {name for service in lake["services"].values() for name in mounted(service).values()}
    assert used == set(lake["secrets"])
    assert all(secret == {"file": f"secrets/{name}"} for name, secret in lake["secrets"].items())
    for service in lake["services"].values():
        assert set(re.findall(r"/run/secrets/([\w.-]+)", str(service))) <= set(mounted(service))
        for name, value in service.get("environment", {}).items():
            assert not re.search(r"PASSWORD|SECRET|TOKEN|KEY", name) or value.startswith("/run/secrets/")
    for reference in (settings.engine.token, settings.journal.password):
        place = Path(SecretReference.parse(str(reference)).place)
        assert place.parent == Path("/run/secrets")
        assert place.name in lake["services"]["watch"]["secrets"]
    # They are in the checkout's folder: git and the images' builder must not take them along.
    assert "deploy/secrets/" in (ROOT / ".gitignore").read_text(encoding="utf-8").split()


def test_what_is_named_is_what_there_is(lake: Any, settings: Settings, spark: dict[str, str]) -> None:
    services = lake["services"]
    assert settings.catalog.uri == "http://nessie:19120/api/v2"
    assert settings.s3 == S3Settings(endpoint="http://s3:8333", region="us-east-1", path_style=True)
    assert "-s3.port=8333" in services["s3"]["command"]
    assert f"@{'journal-db'}:5432/{services['journal-db']['environment']['POSTGRES_DB']}" in str(settings.journal.url)
    assert str(settings.engine.url).endswith(f":{spark['spark.connect.grpc.binding.port']}")
    wanted = {f"spark.hadoop.{name}": value for name, value in s3_properties(settings.s3).items()}
    assert wanted.items() <= spark.items()
    root = click.Context(cli, obj=App())
    for name in ("watch", "dashboard", "serve"):
        words = [word for word in services[name]["command"] if word not in ("--home", "/lake")]
        command = cli.get_command(root, words[0])
        assert command is not None
        assert command.make_context(words[0], words[1:], parent=root).find_object(App) is not None


def test_only_the_login_leads_to_the_dashboard(lake: Any, settings: Settings) -> None:
    ui, proxy = settings.ui, (DEPLOY / "compose" / "login.conf").read_text(encoding="utf-8")
    # It listens on loopback, where nobody but the pod is.
    assert is_loopback(ui.host)
    assert f"proxy_pass http://{ui.host}:{ui.port};" in proxy
    [listening] = re.findall(r"listen (\d+);", proxy)
    assert f"127.0.0.1:{ui.port}:{listening}" in lake["services"]["pod"]["ports"]
    assert not [port for port in lake["services"]["pod"]["ports"] if port.endswith(f":{ui.port}")]
    [users] = lake["services"]["login"]["secrets"]
    assert f"auth_basic_user_file /run/secrets/{users};" in proxy
    # Everything but the answer to "are you there?" is behind the password.
    places = re.findall(r"location (.+) \{\n(?:.*\n)*?        \}", proxy)
    assert places == ["= /healthz", "/"]


def test_other_engines_need_a_token(lake: Any) -> None:
    service = lake["services"]["serve"]
    words = service["command"][service["command"].index("serve") :]
    asked = serve.make_context("serve", words[1:]).params
    assert Path(SecretReference.parse(asked["token"]).place) == Path("/run/secrets") / "reader-token"
    # It is given what the gate takes: the store's credentials, the journal with the open branches, nothing of Spark's.
    assert set(mounted(service)) == {"reader-token", "journal-db-password", "aws-credentials"}
    port = ServeSettings().port
    assert service["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert f":{port}/ready" in service["healthcheck"]["test"][-1]


def test_sparks_settings_hold_no_secret(spark: dict[str, str]) -> None:
    assert not [name for name in spark if re.search(r"token|secret|password|access.key", name)]
