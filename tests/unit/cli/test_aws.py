"""``lakegate aws``: what it prints. ``tests/integration`` tests it against AWS's stand-in."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from lakegate.cli.commands import aws
from lakegate.integrations.aws.parameters import DeploymentPlan, ResourceChange
from support.cli_support import invoke


@pytest.mark.parametrize("home", ["plan", "aws"])
def test_a_plan_ends_with_the_command_that_deploys_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / home).mkdir()
    change = ResourceChange(resource="Bucket", type="AWS::S3::Bucket", action="add")
    planned = DeploymentPlan(stack="lakegate-plan", is_new=True, changes=(change,))
    deployment = SimpleNamespace(plan=lambda *_: planned)
    monkeypatch.setattr(f"{aws.__name__}._Target.deployment", lambda *_: deployment)
    monkeypatch.setattr(aws, "_build", lambda *_, **__: (None, SimpleNamespace(values={}, notes=())))
    done = invoke(["--home", home, "aws", "plan", "--name", "plan"])
    assert done.exit_code == 0, done.output
    assert f"lakegate --home {home} aws deploy --name plan" in done.stdout
