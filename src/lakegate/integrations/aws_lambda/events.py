"""S3's notifications, direct or through SQS, SNS and EventBridge.

AWS documents the formats: "Event message structure" and "Amazon EventBridge event message structure" of S3, "Amazon SNS
message and JSON formats", and "Using Lambda with" SQS, SNS and S3. We declare only the fields that we use and ignore
others. (The models of Powertools for AWS Lambda declare every field, so they reject notifications from other stores
that leave some out. They'd also add a package to the function.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeVar
from urllib.parse import unquote_plus

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from lakegate.errors import InputError

_MAX_DEPTH = 4
"""Depth of the longest chain of wrappers: S3 → EventBridge → SNS → SQS."""
_CREATED = "ObjectCreated:"
_CREATED_BY_BRIDGE = "Object Created"
_MAX_PROBLEMS = 3
_Model = TypeVar("_Model", bound="_EventPart")


class MalformedEventError(InputError):
    """The function's event isn't a complete S3 notification."""

    code = "malformed-event"


@dataclass(frozen=True, slots=True)
class AnnouncedObject:
    """An object that an event announces.

    Attributes:
        etag: Its entity tag; ``None`` if the event has none.
        sequencer: Orders the events of one key: the later event's text is greater (if both have the same length).
    """

    bucket: str
    key: str
    etag: str | None = None
    version_id: str | None = None
    sequencer: str | None = None
    at: datetime | None = None

    @property
    def uri(self) -> str:
        """``s3://bucket/key``, nothing encoded."""
        return f"s3://{self.bucket}/{self.key}"


@dataclass(frozen=True, slots=True)
class EventMessage:
    """One message. It's finished as a whole, or delivered again.

    Attributes:
        files: The objects that it announces; empty if it's about something else.
        id: Its id in the queue; ``None`` if it didn't come from a queue.
        times: How often it was received from its queue.
        receipt: The queue's handle for this delivery.
    """

    files: tuple[AnnouncedObject, ...]
    id: str | None = None
    sent_at: datetime | None = None
    times: int = 1
    error: InputError | None = None
    queue: str | None = None
    receipt: str | None = None


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """The messages of one call.

    Attributes:
        by_queue: Whether they came from SQS, which redelivers each message separately.
    """

    messages: tuple[EventMessage, ...]
    by_queue: bool


def read_event(event: object) -> MessageBatch:
    """Return the messages of an event. Unreadable messages from a queue have an ``error``.

    Raises:
        MalformedEventError: If the event can't be read, or a message from a queue has no id.

    Example:
        >>> s3 = {"bucket": {"name": "landing"}, "object": {"key": "nyc/a+b.csv"}}
        >>> record = {"eventSource": "aws:s3", "eventName": "ObjectCreated:Put", "s3": s3}
        >>> [file.uri for file in read_event({"Records": [record]}).messages[0].files]
        ['s3://landing/nyc/a b.csv']
    """
    records = event.get("Records") if isinstance(event, Mapping) else None
    if isinstance(records, Sequence) and records and _source(records[0]) == "aws:sqs":
        return MessageBatch(tuple(_sqs_message(record) for record in records), by_queue=True)
    return MessageBatch((EventMessage(tuple(_unwrapped(event))),), by_queue=False)


class _EventPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Bucket(_EventPart):
    name: str = Field(pattern=r"^[A-Za-z0-9._-]{3,255}$")


class _Object(_EventPart):
    key: str
    etag: str | None = Field(default=None, validation_alias=AliasChoices("eTag", "etag"))
    version_id: str | None = Field(default=None, validation_alias=AliasChoices("versionId", "version-id"))
    sequencer: str | None = None


class _ObjectLocation(_EventPart):
    bucket: _Bucket
    object: _Object


class _S3Record(_EventPart):
    name: str = Field(validation_alias="eventName")
    time: datetime | None = Field(default=None, validation_alias="eventTime")
    s3: _ObjectLocation


class _SnsMessage(_EventPart):
    text: str = Field(validation_alias="Message")


class _SnsRecord(_EventPart):
    sns: _SnsMessage = Field(validation_alias="Sns")


class _BridgeEvent(_EventPart):
    source: Literal["aws.s3"]
    kind: str = Field(validation_alias="detail-type")
    time: datetime | None = None
    detail: _ObjectLocation


class _SqsAttributes(_EventPart):
    times: int = Field(default=1, ge=1, validation_alias="ApproximateReceiveCount")
    sent_ms: int | None = Field(default=None, ge=0, le=4_102_444_800_000, validation_alias="SentTimestamp")


class _SqsRecord(_EventPart):
    id: str = Field(min_length=1, validation_alias="messageId")
    body: str
    attributes: _SqsAttributes = _SqsAttributes()
    queue: str | None = Field(default=None, validation_alias="eventSourceARN")
    receipt: str | None = Field(default=None, validation_alias="receiptHandle")


def _sqs_message(record: object) -> EventMessage:
    known = _validated(_SqsRecord, record)
    sent_ms = known.attributes.sent_ms
    sent_at = None if sent_ms is None else datetime.fromtimestamp(sent_ms / 1000, UTC)
    try:
        files, error = tuple(_unwrapped(_parsed(known.body))), None
    except MalformedEventError as malformed:
        files, error = (), malformed
    return EventMessage(files, known.id, sent_at, known.attributes.times, error, known.queue, known.receipt)


def _unwrapped(payload: object, depth: int = 1) -> Iterator[AnnouncedObject]:
    """Yield the objects that a payload announces, whatever it's wrapped in."""
    if not isinstance(payload, Mapping) or depth > _MAX_DEPTH:
        raise MalformedEventError("The event isn't from S3, SQS, SNS or EventBridge.")
    if payload.get("Event") == "s3:TestEvent":
        return
    records = payload.get("Records")
    if isinstance(records, list):
        for record in records:
            yield from _record_objects(record, depth)
    elif payload.get("Type") == "Notification":
        yield from _unwrapped(_parsed(_validated(_SnsMessage, payload).text), depth + 1)
    elif "detail-type" in payload:
        yield from _bridge_objects(payload)
    else:
        raise MalformedEventError("The event isn't from S3, SQS, SNS or EventBridge.")


def _record_objects(record: object, depth: int) -> Iterator[AnnouncedObject]:
    source = _source(record)
    if source == "aws:sns":
        yield from _unwrapped(_parsed(_validated(_SnsRecord, record).sns.text), depth + 1)
        return
    # Other stores name themselves: "minio:s3", "ministack:s3".
    if not source.endswith(":s3"):
        raise MalformedEventError(f"A record of the event isn't from S3, but from '{source[:40]}'.")
    read = _validated(_S3Record, record)
    if read.name.removeprefix("s3:").startswith(_CREATED):
        yield from _announced(read.s3, unquote_plus(read.s3.object.key), read.time)


def _bridge_objects(payload: object) -> Iterator[AnnouncedObject]:
    read = _validated(_BridgeEvent, payload)
    if read.kind == _CREATED_BY_BRIDGE:
        yield from _announced(read.detail, read.detail.object.key, read.time)


def _announced(place: _ObjectLocation, key: str, time: datetime | None) -> Iterator[AnnouncedObject]:
    # Reject damaged keys here, since libraries would report them less clearly.
    if not key or "\0" in key or any("\ud800" <= character <= "\udfff" for character in key):
        raise MalformedEventError("The event names an object with an invalid key.")
    if key.endswith("/"):  # an empty marker that a console created for a folder
        return
    about = place.object
    at = time if time is None or time.tzinfo else time.replace(tzinfo=UTC)
    yield AnnouncedObject(place.bucket.name, key, about.etag, about.version_id, about.sequencer, at)


def _source(record: object) -> str:
    if not isinstance(record, Mapping):
        return ""
    return str(record.get("eventSource", record.get("EventSource", "")))


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise MalformedEventError("The message isn't JSON.") from None


def _validated(model: type[_Model], value: object) -> _Model:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        problems = (
            f"{'.'.join(map(str, problem['loc'])) or 'event'}: {problem['msg']}"
            for problem in error.errors()[:_MAX_PROBLEMS]
        )
        raise MalformedEventError(f"The event is incomplete: {'; '.join(problems)}.") from None
