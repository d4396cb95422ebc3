"""A container engine that is none: it writes down what it is asked, runs Dockerfiles as shell, and pushes to ECR's API.

It answers as Docker's, Finch's and Podman's documentation says of the few commands that are used. There is no engine
where these tests run.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

DIGEST = "sha256:" + "b" * 64
"""Of every base."""
_PROGRAM = """#!{python}
import sys
sys.path.insert(0, {folder!r})
from support.fake_engine import main
sys.exit(main(sys.argv))
"""


def install(folder: Path, name: str = "docker") -> None:
    """Put an engine of that name into ``folder``, which is to be on the path."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text(_PROGRAM.format(python=sys.executable, folder=str(Path(__file__).parents[1])), encoding="utf-8")
    program.chmod(0o755)


def calls(folder: Path) -> list[list[str]]:
    """Return what was asked, in order; after ``login`` comes whether a password was sent."""
    return [json.loads(line) for line in (folder / "calls").read_text(encoding="utf-8").splitlines()]


def main(words: list[str]) -> int:
    """Answer one command."""
    home = Path(words[0]).parent
    asked = words[1:]
    if asked[0] == "login":
        asked.append(str(bool(sys.stdin.read().strip())))
    with (home / "calls").open("a", encoding="utf-8") as log:
        log.write(json.dumps(asked) + "\n")
    troubles = os.environ.get("FAKE_ENGINE_FAILS", "").split()
    if asked[0] in troubles:
        sys.stderr.write(f"{asked[0]}: no such host\n")
        return 1
    if asked[:2] == ["image", "inspect"]:
        # Docker leaves out its own registry's name.
        repository = asked[-1].removeprefix("docker.io/").rpartition(":")[0]
        sys.stdout.write(f"{repository}@{DIGEST}\n")
    elif asked[0] == "build":
        run_dockerfile(Path.cwd(), home / "root")
    elif asked[0] == "push":
        _push(asked[-1])
    return 0


def run_dockerfile(context: Path, root: Path) -> None:
    """Do what a Dockerfile says, with ``root`` for the image's file system.

    Raises:
        subprocess.CalledProcessError: When a step fails.
    """
    variables = {"LAMBDA_TASK_ROOT": "/var/task"}  # of AWS's base image
    for line in (context / "Dockerfile").read_text(encoding="utf-8").splitlines():
        step, _, rest = line.partition(" ")
        if step == "COPY":
            *sources, target = (part.replace("${LAMBDA_TASK_ROOT}", "/var/task") for part in rest.split())
            folder = root / target.strip("/")
            folder.mkdir(parents=True, exist_ok=True)
            for source in sources:
                path = context / source
                if path.is_dir():  # its content, as Docker does
                    shutil.copytree(path, folder, dirs_exist_ok=True)
                else:
                    shutil.copy(path, folder)
        elif step == "RUN":
            command = [str(root) + part if part.startswith("/") else part for part in shlex.split(rest)]
            subprocess.run(command, check=True, env={**os.environ, **variables})
        else:
            assert step in {"ARG", "FROM", "USER", "CMD", "#", ""}, line


def _push(image: str) -> None:
    import boto3

    repository, _, tag = image.partition("/")[2].rpartition(":")
    manifest = json.dumps({"schemaVersion": 2, "made": hashlib.sha256(image.encode()).hexdigest()})
    boto3.client("ecr").put_image(repositoryName=repository, imageTag=tag, imageManifest=manifest)
