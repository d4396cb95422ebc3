"""The state of a deployment's queues, servers, function and logs; and a smoke test with a file through all of them."""

from __future__ import annotations

import io
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from lakegate.errors import LakegateError, RetryableError
from lakegate.integrations.aws.clients import GONE, Clients, DeploymentError, translate_errors
from lakegate.integrations.aws.parameters import FunctionStatus, LoggedError, ServerStatus, Smoke
from lakegate.ports import Narrator

_ERRORS_SINCE = timedelta(days=1)
_PUT_OFF_SINCE = timedelta(hours=4)
_PUT_OFF = '"\\"outcome\\": \\"put off\\""'
_ERRORS = '?"\\"level\\": \\"error\\"" ?"[ERROR]" ?"Task timed out" ?"Runtime exited" ?" ERROR " ?"FATAL"'
"""Error patterns of the function, Lambda, Nessie, Spark and psql."""
_LONGEST = 1000
NAMESPACE = "lakegate_canary"
"""The same as ``lakegate.integrations.aws_lambda.work.CANARY_NAMESPACE``."""
TIMEOUT_S = 1200.0
"""Enough for a batch window of notifications, Spark's first start with its downloads, and one retry."""
_POLL_S = 5.0


def queue_depth(clients: Clients, url: str | None) -> tuple[int | None, int | None]:
    """Return how many messages of a queue are waiting, and how many in progress or postponed; ``None`` if no queue."""
    if url is None:
        return None, None
    with translate_errors("looking at the queue", unless=GONE):
        found = clients.sqs.get_queue_attributes(
            QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        )["Attributes"]
        return int(found["ApproximateNumberOfMessages"]), int(found["ApproximateNumberOfMessagesNotVisible"])
    return None, None


def servers_running(clients: Clients, services: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return the name and the numbers of running and desired tasks of each ECS service."""
    found = []
    for arn in services:
        cluster, name = _service(arn)
        with translate_errors(f"looking at service {name}"):
            answer = clients.ecs.describe_services(cluster=cluster, services=[name])
        found += [(name, one["runningCount"], one["desiredCount"]) for one in answer["services"]]
    return found


def server_status(clients: Clients, services: Sequence[str]) -> tuple[ServerStatus, ...]:
    """Return the state of each ECS service, and why its last task stopped."""
    return tuple(
        ServerStatus(name=name, running=running, wanted=wanted, stopped=_last_stop(clients, arn))
        for arn in services
        for name, running, wanted in servers_running(clients, [arn])
    )


def _last_stop(clients: Clients, service: str) -> str | None:
    cluster, name = _service(service)
    with translate_errors(f"looking at the tasks of service {name}"):
        arns = clients.ecs.list_tasks(cluster=cluster, serviceName=name, desiredStatus="STOPPED")["taskArns"]
        tasks = clients.ecs.describe_tasks(cluster=cluster, tasks=arns)["tasks"] if arns else []
    tasks = [one for one in tasks if "stoppedAt" in one]
    if not tasks:
        return None
    last = max(tasks, key=lambda one: one["stoppedAt"])
    exits = [
        f"{one['name']}: {one.get('reason') or 'exit code ' + str(one['exitCode'])}"
        for one in last.get("containers", ())
        if one.get("reason") or one.get("exitCode")
    ]
    reasons = "; ".join(filter(None, [last.get("stoppedReason", ""), *exits])) or "no reason was given"
    return f"{last['stoppedAt'].astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC: {reasons}"


def start_server(clients: Clients, service: str) -> None:
    """Make an ECS service run one task."""
    cluster, name = _service(service)
    with translate_errors(f"starting service {name}"):
        clients.ecs.update_service(cluster=cluster, service=name, desiredCount=1)


def function_status(clients: Clients, name: str | None) -> FunctionStatus | None:
    """Return the function's state; ``None`` if it doesn't exist."""
    if name is None:
        return None
    with translate_errors(f"looking at function {name}", unless=GONE):
        found = clients.functions.get_function_configuration(FunctionName=name)
        return FunctionStatus(
            name=name,
            runtime=found.get("Runtime", ""),
            state=found.get("StateReason") or found.get("State", "Active"),
            code_sha256=found["CodeSha256"],
            modified_at=found["LastModified"],
        )
    return None


def function_image(clients: Clients, name: str | None) -> str | None:
    """Return the digest of the image that a function runs; ``None`` without a function or an image."""
    if name is None:
        return None
    with translate_errors(f"looking at function {name}", unless=GONE):
        return clients.functions.get_function(FunctionName=name)["Code"].get("ResolvedImageUri")
    return None


def last_errors(clients: Clients, group: str | None, limit: int) -> tuple[LoggedError, ...]:
    """Return the last errors in the logs of the past day, oldest first."""
    return _logged(clients, group, _ERRORS, _ERRORS_SINCE, limit)


def last_put_off(clients: Clients, group: str | None) -> LoggedError | None:
    """Return the function's last log line about a postponed file, with the reason."""
    found = _logged(clients, group, _PUT_OFF, _PUT_OFF_SINCE, 1)
    if not found:
        return None
    try:
        facts = json.loads(found[0].text)
        return LoggedError(time=found[0].time, text=f"{facts['file']}: {facts['reason']}")
    except (ValueError, KeyError, TypeError):
        return found[0]


def _logged(clients: Clients, group: str | None, pattern: str, since: timedelta, limit: int) -> tuple[LoggedError, ...]:
    if group is None or limit < 1:
        return ()
    start = datetime.now(UTC) - since
    events = []
    with translate_errors(f"reading the logs {group}", unless=GONE):
        pages = clients.logs.get_paginator("filter_log_events").paginate(
            logGroupName=group, startTime=int(start.timestamp() * 1000), filterPattern=pattern
        )
        events = [event for page in pages for event in page["events"]]
    events.sort(key=lambda event: event.get("timestamp", 0))
    return tuple(
        LoggedError(
            time=datetime.fromtimestamp(event["timestamp"] / 1000, UTC), text=event["message"].strip()[:_LONGEST]
        )
        for event in events[-limit:]
    )


def _service(arn: str) -> tuple[str, str]:
    """Return the cluster and the name of an ECS service."""
    _, cluster, name = arn.rpartition(":")[2].split("/")
    return cluster, name


def smoke(
    clients: Clients,
    outputs: Mapping[str, str],
    services: tuple[str, ...],
    narrator: Narrator,
    *,
    timeout_s: float = TIMEOUT_S,
    poll_s: float = _POLL_S,
) -> Smoke:
    """Upload a test file, wait until it's published, and remove it from ``main`` again.

    Args:
        services: ARNs of the servers on ECS. An error reports their state.

    Raises:
        DeploymentError: If no route matches the file, or it wasn't published. The message has the deployment's state.
    """
    canary = f"canary_{uuid.uuid4().hex[:12]}"
    landing = outputs["Landing"]
    bucket, _, prefix = landing.removeprefix("s3://").partition("/")
    key = f"{prefix}{NAMESPACE}/{canary}/canary.parquet"
    uri = f"s3://{bucket}/{key}"
    began = time.monotonic()
    with narrator.step("Waiting until a test file is published"):
        answer = _ask_function(clients, outputs, uri)
        if answer.get("outcome") in ("no route", "not canary"):
            raise DeploymentError(
                f"No route maps {uri} to {NAMESPACE}.{canary}, so the deployment can't be tested.",
                hint="Add the route PREFIX/{namespace}/{table}/** to --routes, or deploy without --smoke.",
            )
        with translate_errors(f"uploading to bucket {bucket}"):
            stored = clients.s3.put_object(Bucket=bucket, Key=key, Body=_parquet(), ExpectedBucketOwner=clients.account)
        try:
            while answer.get("outcome") not in ("done", "rejected", "failed"):
                if time.monotonic() - began > timeout_s:
                    raise _smoke_error(clients, outputs, services, answer, f"not published within {timeout_s:.0f} s")
                time.sleep(poll_s)
                answer = _ask_function(clients, outputs, uri)
            if answer["outcome"] != "done":
                raise _smoke_error(clients, outputs, services, answer, answer["outcome"])
        finally:
            with translate_errors(f"deleting from bucket {bucket}"):
                extra: Any = {"VersionId": version} if (version := stored.get("VersionId", "")) else {}
                clients.s3.delete_object(Bucket=bucket, Key=key, ExpectedBucketOwner=clients.account, **extra)
    seconds = round(time.monotonic() - began, 1)
    return Smoke(table=f"{NAMESPACE}.{canary}", run_id=answer.get("run_id") or "", seconds=seconds)


def _ask_function(clients: Clients, outputs: Mapping[str, str], uri: str) -> dict[str, Any]:
    """Return the function's response. A failed call counts as ``waiting``, since it may be temporary."""
    name = outputs["FunctionName"]
    try:
        with translate_errors(f"calling function {name}"):
            got = clients.functions.invoke(FunctionName=name, Payload=json.dumps({"lakegate canary": uri}).encode())
            payload = json.loads(got["Payload"].read() or b"null")
    except (RetryableError, DeploymentError) as error:
        return {"outcome": "waiting", "reason": error.message}
    if got.get("FunctionError"):
        message = payload.get("errorMessage") if isinstance(payload, dict) else payload
        return {"outcome": "waiting", "reason": f"The function failed: {message}"}
    return payload if isinstance(payload, dict) else {"outcome": "waiting"}


def _smoke_error(
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
    details = "; ".join(fact.rstrip(".") for fact in facts)
    return DeploymentError(
        f"The deployment succeeded, but its test file was {what}: {details}.",
        hint=f"Read the logs: aws logs tail {outputs.get('LogGroup')} --since 30m; or run lakegate aws status.",
        run=answer.get("run_id"),
    )


def _parquet() -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    buffer = io.BytesIO()
    parquet.write_table(pa.table({"id": [1], "made_by": ["lakegate aws deploy --smoke"]}), buffer)
    return buffer.getvalue()
