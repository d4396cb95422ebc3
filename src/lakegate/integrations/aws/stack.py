"""A CloudFormation stack: prepare and execute change sets, follow its events, delete it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakegate.errors import LakegateError, RetryableError
from lakegate.integrations.aws.clients import STACK_TAG, DeploymentError, error_code, error_text, translate_errors
from lakegate.integrations.aws.parameters import NAMES, TEMPLATE, Resource, ResourceChange, defaults, template_body
from lakegate.integrations.aws.sizing import require_fitting
from lakegate.ports import Narrator

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient

NEW = "REVIEW_IN_PROGRESS"
"""State of a stack that has only a change set so far."""
_DEAD_ENDS = frozenset({"CREATE_FAILED", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "DELETE_FAILED"})
_CAPABILITIES = ("CAPABILITY_IAM",)
_NO_CHANGES = ("didn't contain changes", "No updates are to be performed")
_CANCELLED = ("cancelled", "initiated")
_POLL_S = 2.0
_PREPARE_TIMEOUT_S = 600.0
_CHANGE_TIMEOUT_S = 7200.0


@dataclass(frozen=True, slots=True)
class CloudStackState:
    """The state of a CloudFormation stack."""

    id: str
    status: str
    reason: str | None
    parameters: Mapping[str, str]
    outputs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """A change set that is ready to execute, with its changes and all resulting parameters."""

    id: str
    stack_id: str
    is_new: bool
    changes: tuple[ResourceChange, ...]
    values: Mapping[str, str]


class Stack:
    """A stack by its name.

    Args:
        role: ARN of the role for CloudFormation to assume; by default, the caller's own. The last role
            that was passed remains the stack's, also for its deletion.
        poll_s: Seconds between two requests for CloudFormation's progress.
    """

    def __init__(
        self,
        client: CloudFormationClient,
        name: str,
        narrator: Narrator,
        *,
        role: str | None = None,
        poll_s: float = _POLL_S,
        template: Path = TEMPLATE,
    ) -> None:
        self.name = name
        self._deployment = name.removeprefix("lakegate-")
        self._template = template
        self._client = client
        self._narrator = narrator
        self._role = role
        self._poll_s = poll_s

    def state(self, stack_id: str | None = None) -> CloudStackState | None:
        """Return the stack's state; ``None`` if it doesn't exist.

        Args:
            stack_id: The stack's id, which also finds a deleted stack; by default the current one with this name.
        """
        from botocore.exceptions import ClientError

        with translate_errors(f"looking at stack {self.name}"):
            try:
                found = self._client.describe_stacks(StackName=stack_id or self.name)["Stacks"]
            except ClientError as error:
                if error_code(error) == "ValidationError" and "does not exist" in error_text(error):
                    return None
                raise
        return _state(found[0]) if found else None

    def resources(self) -> tuple[Resource, ...]:
        """Return the stack's current resources."""
        with translate_errors(f"listing the resources of stack {self.name}"):
            pages = self._client.get_paginator("list_stack_resources").paginate(StackName=self.name)
            return tuple(
                Resource(
                    resource=one["LogicalResourceId"], type=one["ResourceType"], id=one.get("PhysicalResourceId", "")
                )
                for page in pages
                for one in page["StackResourceSummaries"]
                if one["ResourceStatus"] != "DELETE_COMPLETE"
            )

    def prepare(self, given: Mapping[str, str]) -> ChangeSet | None:
        """Create a change set; ``None`` if nothing would change. Other parameters keep their values.

        Raises:
            DeploymentError: If the stack's state doesn't allow changes, or the template or a value is refused.
            InputError: If values can't be combined, see :func:`lakegate.integrations.aws.sizing.require_fitting`.
            RetryableError: If something else is changing the stack.
        """
        before = self.state()
        is_new = before is None or before.status == NEW
        if before is not None and not is_new:
            self._require_changeable(before)
        known = before.parameters if before is not None and not is_new else {}
        values = {**defaults(), **{name: value for name, value in known.items() if name in NAMES}, **given}
        if self._template == TEMPLATE:
            require_fitting(values)
        token = f"lakegate-{uuid.uuid4().hex[:16]}"
        request: dict[str, Any] = {
            "StackName": self.name,
            "ChangeSetName": token,
            "ClientToken": token,  # the client repeats a request whose answer was lost
            "ChangeSetType": "CREATE" if is_new else "UPDATE",
            "TemplateBody": template_body(self._template),
            "Parameters": [
                *({"ParameterKey": name, "ParameterValue": value} for name, value in given.items()),
                # Except those that only an earlier version's template had.
                *({"ParameterKey": name, "UsePreviousValue": True} for name in known if name in NAMES - given.keys()),
            ],
            "Capabilities": list(_CAPABILITIES),
            "Tags": [{"Key": STACK_TAG, "Value": self.name}],
            # A first deployment that fails leaves nothing behind.
            **({"OnStackFailure": "DELETE"} if is_new else {}),
            **({"RoleARN": self._role} if self._role else {}),
        }
        with translate_errors(f"planning stack {self.name}"):
            made = self._client.create_change_set(**request)
        changes = self._await_changes(made["Id"], made["StackId"], is_new=is_new)
        return None if changes is None else ChangeSet(made["Id"], made["StackId"], is_new, changes, values)

    def discard(self, change_set: ChangeSet) -> None:
        """Delete a change set, and the empty stack that CloudFormation created for it."""
        self._delete_change_set(change_set.id, change_set.stack_id, is_new=change_set.is_new)

    def execute(self, change_set: ChangeSet) -> CloudStackState:
        """Execute a change set and wait for the result.

        Raises:
            DeploymentError: If a change failed and all were rolled back. The message names the resource and the reason.
        """
        total = len(change_set.changes)
        before = self._newest_event(change_set.stack_id)
        with translate_errors(f"changing stack {self.name}"):
            self._client.execute_change_set(ChangeSetName=change_set.id, ClientRequestToken=uuid.uuid4().hex)
        end, events = self._follow(change_set.stack_id, f"Changing stack {self.name}", total, before)
        if end.status not in {"CREATE_COMPLETE", "UPDATE_COMPLETE"}:
            raise self._change_error("Deploying", end, events)
        return end

    def delete(self) -> None:
        """Delete the stack if it exists, and wait for the result.

        Raises:
            DeploymentError: If a resource can't be deleted. The message names the resource and the reason.
        """
        found = self.state()
        if found is None:
            return
        total = len(self.resources())
        before = self._newest_event(found.id)
        with translate_errors(f"deleting stack {self.name}"):
            self._client.delete_stack(StackName=found.id)
        end, events = self._follow(found.id, f"Deleting stack {self.name}", total, before)
        if end.status != "DELETE_COMPLETE":
            raise self._change_error("Deleting", end, events)

    def drifted(self) -> tuple[str, ...]:
        """Return the resources that were changed outside CloudFormation."""
        with translate_errors(f"detecting drift of stack {self.name}"), self._narrator.step("Detecting drift"):
            detection = self._client.detect_stack_drift(StackName=self.name)["StackDriftDetectionId"]
            for _ in self._polls(_PREPARE_TIMEOUT_S):
                found = self._client.describe_stack_drift_detection_status(StackDriftDetectionId=detection)
                if found["DetectionStatus"] != "DETECTION_IN_PROGRESS":
                    break
            drifts = self._client.describe_stack_resource_drifts(
                StackName=self.name, StackResourceDriftStatusFilters=["MODIFIED", "DELETED"]
            )
        return tuple(one["LogicalResourceId"] for one in drifts["StackResourceDrifts"])

    def _require_changeable(self, found: CloudStackState) -> None:
        if found.status in _DEAD_ENDS:
            raise DeploymentError(
                f"Stack {self.name} is in the state {found.status}, in which it can only be deleted.",
                hint=f"lakegate aws destroy --name {self._deployment} --keep-data",
                stack=self.name,
            )
        if found.status == "UPDATE_ROLLBACK_FAILED":
            raise DeploymentError(
                f"Stack {self.name} couldn't be rolled back ({found.reason}).",
                hint=f"aws cloudformation continue-update-rollback --stack-name {self.name}",
                stack=self.name,
            )
        if found.status.endswith("_IN_PROGRESS"):
            raise RetryableError(
                f"Stack {self.name} is being changed ({found.status}).",
                hint=f"See its progress: lakegate aws status --name {self._deployment}",
                stack=self.name,
            )

    def _await_changes(self, change_set: str, stack_id: str, *, is_new: bool) -> tuple[ResourceChange, ...] | None:
        for _ in self._polls(_PREPARE_TIMEOUT_S):
            with translate_errors(f"planning stack {self.name}"):
                found = self._client.describe_change_set(ChangeSetName=change_set)
            if found["Status"] == "CREATE_COMPLETE":
                return self._changes(change_set)
            if found["Status"] == "FAILED":
                reason = found.get("StatusReason", "")
                is_change = not any(text in reason for text in _NO_CHANGES)
                invalid = self._validation_error(ChangeSetName=change_set) if is_change else None
                self._delete_change_set(change_set, stack_id, is_new=is_new)
                if is_change:
                    raise self._planning_error(reason, invalid)
                return None
        raise RetryableError(f"CloudFormation didn't plan stack {self.name} in {_PREPARE_TIMEOUT_S:g} s.")

    def _planning_error(self, reason: str, invalid: Any) -> DeploymentError:
        where = ""
        if invalid is not None:
            where = f" at {invalid.get('LogicalResourceId')} ({invalid.get('ResourceType')})"
            reason = invalid.get("ValidationStatusReason") or reason
        return DeploymentError(
            f"Stack {self.name} can't be planned{where}: {reason}",
            hint=_hint(reason, self._deployment),
            stack=self.name,
        )

    def _delete_change_set(self, change_set: str, stack_id: str, *, is_new: bool) -> None:
        with translate_errors(f"deleting a change set of stack {self.name}"):
            self._client.delete_change_set(ChangeSetName=change_set)
        found = self.state(stack_id) if is_new else None
        if found is not None and found.status == NEW:  # otherwise someone else has deployed it meanwhile
            with translate_errors(f"deleting the empty stack {self.name}"):
                self._client.delete_stack(StackName=stack_id)

    def _changes(self, change_set: str) -> tuple[ResourceChange, ...]:
        with translate_errors(f"planning stack {self.name}"):
            pages = self._client.get_paginator("describe_change_set").paginate(ChangeSetName=change_set)
            return tuple(_change(one["ResourceChange"]) for page in pages for one in page["Changes"])

    def _follow(
        self, stack_id: str, text: str, total: int, before: datetime | None
    ) -> tuple[CloudStackState, Sequence[Any]]:
        """Wait until the stack stops changing; return its state, and its events since ``before``."""
        seen: dict[str, Any] = {}
        with self._narrator.step(text) as step:
            for _ in self._polls(_CHANGE_TIMEOUT_S):
                state = self.state(stack_id)
                # Read events after the state, so that the final state comes with all events.
                for event in self._events(stack_id, before):
                    if event["EventId"] not in seen:
                        seen[event["EventId"]] = event
                        self._report_failure(event)
                step.progress(min(_done(seen.values()), total), total, "resources")
                if state is None:
                    return CloudStackState(stack_id, "DELETE_COMPLETE", None, {}, {}), tuple(seen.values())
                if not state.status.endswith("_IN_PROGRESS") or state.status == NEW:
                    return state, tuple(seen.values())
        raise RetryableError(f"Stack {self.name} is still being changed after {_CHANGE_TIMEOUT_S / 3600:g} hours.")

    def _report_failure(self, event: Any) -> None:
        status = event.get("ResourceStatus", "")
        if status.endswith("_FAILED"):
            self._narrator.note(f"{event['LogicalResourceId']}: {event.get('ResourceStatusReason', status)}")

    def _newest_event(self, stack_id: str) -> datetime | None:
        with translate_errors(f"following stack {self.name}"):
            events = self._client.describe_stack_events(StackName=stack_id)["StackEvents"]
        return events[0]["Timestamp"] if events else None

    def _events(self, stack_id: str, after: datetime | None) -> list[Any]:
        """Return the stack's events since ``after``, oldest first."""
        events: list[Any] = []
        with translate_errors(f"following stack {self.name}"):
            for page in self._client.get_paginator("describe_stack_events").paginate(StackName=stack_id):
                new = [one for one in page["StackEvents"] if after is None or one["Timestamp"] > after]
                events += new
                if len(new) < len(page["StackEvents"]):
                    break
        return events[::-1]

    def _change_error(self, doing: str, end: CloudStackState, events: Sequence[Any]) -> DeploymentError:
        culprit = next(filter(self._is_cause, events), None) or self._validation_error(StackName=end.id)
        is_undone = "ROLLBACK" in end.status or end.status == "DELETE_COMPLETE"
        undone = " All changes were rolled back." if is_undone else ""
        if culprit is None:
            return DeploymentError(
                f"{doing} stack {self.name} failed: {end.reason or end.status}.{undone}", stack=self.name
            )
        resource, kind = culprit["LogicalResourceId"], culprit["ResourceType"]
        reasons = (culprit.get(key) for key in ("ValidationStatusReason", "ResourceStatusReason"))
        reason = next(filter(None, reasons), "no reason was given").rstrip(".")
        return DeploymentError(
            f"{doing} stack {self.name} failed at {resource} ({kind}): {reason}.{undone}",
            hint=_hint(reason, self._deployment),
            stack=self.name,
            resource=resource,
        )

    def _validation_error(self, **of: Any) -> Any:
        """Return an error that CloudFormation found before executing, which isn't among the stack's events."""
        with suppress(LakegateError), translate_errors(f"following stack {self.name}"):
            found = self._client.describe_events(**of, Filters={"FailedEvents": True})["OperationEvents"]
            return next((event for event in found if event.get("EventType") == "VALIDATION_ERROR"), None)
        return None

    def _is_cause(self, event: Any) -> bool:
        reason = event.get("ResourceStatusReason", "")
        return (
            event.get("ResourceStatus", "").endswith("_FAILED")
            and event["LogicalResourceId"] != self.name
            and not any(word in reason for word in _CANCELLED)
        )

    def _polls(self, timeout_s: float) -> Iterator[None]:
        deadline = time.monotonic() + timeout_s
        while True:
            yield
            if time.monotonic() >= deadline:
                return
            time.sleep(self._poll_s)


def _done(events: Iterable[Any]) -> int:
    return len({one["LogicalResourceId"] for one in events if one.get("ResourceStatus", "").endswith("_COMPLETE")})


def _state(found: Any) -> CloudStackState:
    return CloudStackState(
        id=found["StackId"],
        status=found["StackStatus"],
        reason=found.get("StackStatusReason"),
        parameters={one["ParameterKey"]: one.get("ParameterValue", "") for one in found.get("Parameters", ())},
        outputs={one["OutputKey"]: one["OutputValue"] for one in found.get("Outputs", ())},
    )


def _change(found: Any) -> ResourceChange:
    targets = (detail.get("Target", {}) for detail in found.get("Details", ()))
    names = (target.get("Name") or target.get("Attribute", "") for target in targets)
    replacement = found.get("Replacement")
    return ResourceChange(
        action=found["Action"].lower(),
        resource=found["LogicalResourceId"],
        type=found["ResourceType"],
        replacement=replacement.lower() if replacement else None,
        properties=tuple(dict.fromkeys(name for name in names if name)),
    )


def _hint(reason: str, name: str) -> str:
    text = reason.lower()
    if "already exists" in text:
        return "It was kept, or is someone else's: choose another --name (for a bucket, --bucket-name), or delete it."
    if "not empty" in text:
        return f"lakegate aws destroy --name {name} empties its own buckets; empty the others yourself, or keep them."
    if "not authorized" in text or "access denied" in text:
        return "The user or role that deploys needs this permission."
    return f"For the options, run lakegate aws plan --help; for the stack's state, lakegate aws status --name {name}."
