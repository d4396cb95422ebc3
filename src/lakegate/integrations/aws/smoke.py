"""A test of a deployment: a file of ours is uploaded, ingested, published, reverted and deleted."""

from __future__ import annotations

import io
import json
import time
import uuid
from collections.abc import Mapping
from typing import Any

from lakegate.errors import LakegateError, RetryableError
from lakegate.integrations.aws.clients import Clients, DeploymentError, translated
from lakegate.integrations.aws.inspection import queue_depth, servers_running
from lakegate.integrations.aws.parameters import Smoke
from lakegate.ports import Narrator

NAMESPACE = "lakegate_canary"
"""The same as ``lakegate.integrations.aws_lambda.work.CANARY_NAMESPACE``."""
TIMEOUT_S = 1200.0
"""Enough for a window of notifications, a first start of Spark with its packages, and one retry."""
_POLL_S = 5.0


def smoke(
    clients: Clients,
    outputs: Mapping[str, str],
    services: tuple[str, ...],
    narrator: Narrator,
    *,
    timeout_s: float = TIMEOUT_S,
    poll_s: float = _POLL_S,
) -> Smoke:
    """Upload a test file and wait until it's published; nothing of it remains on ``main``.

    Args:
        services: ARNs of the servers on ECS, whose state an error names.
        timeout_s: How long to wait.
        poll_s: Seconds between two requests.

    Raises:
        DeploymentError: No route matches it, or it wasn't published; with the state of the deployment.
    """
    canary = f"canary_{uuid.uuid4().hex[:12]}"
    landing = outputs["Landing"]
    bucket, _, prefix = landing.removeprefix("s3://").partition("/")
    key = f"{prefix}{NAMESPACE}/{canary}/canary.parquet"
    uri = f"s3://{bucket}/{key}"
    began = time.monotonic()
    with narrator.step("Waiting until a test file is published"):
        answer = _ask(clients, outputs, uri)
        if answer.get("outcome") in ("no route", "not canary"):
            raise DeploymentError(
                f"No route leads {uri} to {NAMESPACE}.{canary}, so the deployment can't be tested.",
                hint="Add the route PREFIX/{namespace}/{table}/** to --routes, or deploy without --smoke.",
            )
        with translated(f"uploading to bucket {bucket}"):
            stored = clients.s3.put_object(Bucket=bucket, Key=key, Body=_parquet(), ExpectedBucketOwner=clients.account)
        try:
            while answer.get("outcome") not in ("done", "rejected", "failed"):
                if time.monotonic() - began > timeout_s:
                    raise _stuck(clients, outputs, services, answer, f"not published within {timeout_s:.0f} s")
                time.sleep(poll_s)
                answer = _ask(clients, outputs, uri)
            if answer["outcome"] != "done":
                raise _stuck(clients, outputs, services, answer, answer["outcome"])
        finally:
            with translated(f"deleting from bucket {bucket}"):
                extra: Any = {"VersionId": version} if (version := stored.get("VersionId", "")) else {}
                clients.s3.delete_object(Bucket=bucket, Key=key, ExpectedBucketOwner=clients.account, **extra)
    seconds = round(time.monotonic() - began, 1)
    return Smoke(table=f"{NAMESPACE}.{canary}", run_id=answer.get("run_id") or "", seconds=seconds)


def _ask(clients: Clients, outputs: Mapping[str, str], uri: str) -> dict[str, Any]:
    """Return the function's response. A failed call counts as one, too: it may be temporary."""
    name = outputs["FunctionName"]
    try:
        with translated(f"calling function {name}"):
            got = clients.functions.invoke(FunctionName=name, Payload=json.dumps({"lakegate canary": uri}).encode())
            payload = json.loads(got["Payload"].read() or b"null")
    except (RetryableError, DeploymentError) as error:
        return {"outcome": "waiting", "reason": error.message}
    if got.get("FunctionError"):
        said = payload.get("errorMessage") if isinstance(payload, dict) else payload
        return {"outcome": "waiting", "reason": f"The function failed: {said}"}
    return payload if isinstance(payload, dict) else {"outcome": "waiting"}


def _stuck(
    clients: Clients, outputs: Mapping[str, str], services: tuple[str, ...], answer: Mapping[str, Any], what: str
) -> DeploymentError:
    facts = [str(answer["reason"])] if answer.get("reason") else []
    try:
        facts += [
            f"{name} runs {running} of {wanted} tasks" for name, running, wanted in servers_running(clients, services)
        ]
        waiting, in_flight = queue_depth(clients, outputs.get("QueueUrl"))
        dead, _ = queue_depth(clients, outputs.get("DeadLettersUrl"))
        facts.append(
            f"{waiting} notifications are waiting, {in_flight} are in progress or postponed, {dead} were given up"
        )
    except LakegateError as error:
        facts.append(error.message)
    told = "; ".join(fact.rstrip(".") for fact in facts)
    return DeploymentError(
        f"The deployment succeeded, but its test file was {what}: {told}.",
        hint=f"Read the logs: aws logs tail {outputs.get('LogGroup')} --since 30m; or run lakegate aws status.",
        run=answer.get("run_id"),
    )


def _parquet() -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    buffer = io.BytesIO()
    parquet.write_table(pa.table({"id": [1], "made_by": ["lakegate aws deploy --smoke"]}), buffer)
    return buffer.getvalue()
