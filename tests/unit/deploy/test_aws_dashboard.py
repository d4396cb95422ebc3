"""The dashboard's stack on AWS: its environment makes the settings of a dashboard with a login."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from lakegate.cli.app import App
from lakegate.cli.main import cli
from lakegate.config import ENV_PREFIX, load_settings
from lakegate.dashboard.ui.access import CALLBACK, auth_secrets, decide_access
from support.deploy_files import DEPLOY, load_template

TEMPLATE = DEPLOY / "aws" / "dashboard.yaml"
GIVEN = {
    "Url": "https://lake.example.com",
    "OidcMetadataUrl": "https://login.example.com/.well-known/openid-configuration",
    "OidcClientId": "lake",
    "CatalogUri": "http://catalog.lakegate-demo.internal:19120/api/v2",
    "JournalUrl": "postgresql://journal@database.example.com:5432/lakegate",
    "AWS::AccountId": "123456789012",
}


@pytest.fixture(scope="module")
def template() -> dict[str, Any]:
    return load_template(TEMPLATE)


def test_its_environment_makes_a_dashboard_that_asks_for_a_login(
    template: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    [container] = template["Resources"]["Task"]["Properties"]["ContainerDefinitions"]
    values = {name: one.get("Default") for name, one in template["Parameters"].items()} | GIVEN
    env = {one["Name"]: _value(one["Value"], values) for one in container["Environment"]}
    settings = load_settings(tmp_path, env=env)
    for secret in container["Secrets"]:
        monkeypatch.setenv(secret["Name"], "x" * 64)
    assert all(name.startswith(ENV_PREFIX) for name in env)
    access = decide_access(settings.ui, "0.0.0.0", allow_actions=False)
    assert access.login == "oidc"
    assert auth_secrets(access)["auth"]["redirect_uri"] == f"https://lake.example.com/{CALLBACK}"
    assert settings.ui.query is False
    assert settings.journal.password == "env:JOURNAL_PASSWORD"
    assert str(template["Outputs"]["Redirect"]["Value"]["Fn::Sub"]).endswith(f"/{CALLBACK}")
    assert template["Resources"]["CookieSecret"]["Properties"]["GenerateSecretString"]["PasswordLength"] >= 32


def test_only_the_load_balancer_reaches_the_container_and_it_is_read_only_by_default(template: dict[str, Any]) -> None:
    made = template["Resources"]
    [rule] = made["Group"]["Properties"]["SecurityGroupIngress"]
    assert rule["SourceSecurityGroupId"] == {"Fn::GetAtt": ["BalancerGroup", "GroupId"]}
    assert made["Service"]["Properties"]["NetworkConfiguration"]["AwsvpcConfiguration"]["AssignPublicIp"] == "DISABLED"
    assert made["Listener"]["Properties"]["Protocol"] == "HTTPS"
    [container] = made["Task"]["Properties"]["ContainerDefinitions"]
    acts, looks = container["Command"]["Fn::If"][1:]
    assert set(acts) - set(looks) == {"--allow-actions"}
    ui = cli.get_command(click.Context(cli, obj=App()), "ui")
    assert ui is not None
    ui.make_context("ui", acts[acts.index("ui") + 1 :], obj=App())
    assert template["Parameters"]["AllowActions"]["Default"] == "false"
    for statement in made["Role"]["Properties"]["Policies"][0]["PolicyDocument"]["Statement"]:
        writes = "s3:PutObject" in str(statement)
        assert not writes or statement["Fn::If"][0] == "MayAct"


def _value(value: Any, given: dict[str, Any]) -> str:
    if not isinstance(value, dict):
        return str(value)
    return str(given[value["Ref"]]) if "Ref" in value else value["Fn::Sub"].replace("${Bucket}", "lake")
