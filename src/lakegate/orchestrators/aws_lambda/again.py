"""Messages whose file failed come again soon: the queue's own time is for what has to wait for others."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence

from lakegate.orchestrators.aws_lambda.events import Message

_LOG = logging.getLogger(__name__)
_MOST_ENTRIES = 10
"""SQS's limit: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibilityBatch.html."""
_TIMEOUT_S = 3


def come_again(messages: Iterable[Message], *, after_s: int) -> None:
    """Ask SQS to deliver messages again after ``after_s`` seconds, and not after the queue's visibility timeout.

    A queue that cannot be asked delivers them when that is over, so nothing that goes wrong with it is an error.

    Args:
        messages: Messages that were just delivered, and are not done.
        after_s: Seconds from now.
    """
    by_queue = defaultdict[str, list[str]](list)
    for message in messages:
        if message.queue is not None and message.receipt is not None:
            by_queue[message.queue].append(message.receipt)
    for queue, receipts in by_queue.items():
        try:
            _change(queue, receipts, after_s)
        except Exception as error:  # noqa: BLE001 - as said above
            _LOG.warning("Queue %s was not asked to deliver again soon: %s", queue, type(error).__name__)


def _change(queue: str, receipts: Sequence[str], after_s: int) -> None:
    import boto3  # noqa: PLC0415 - slow to import
    from botocore.config import Config  # noqa: PLC0415

    _arn, _partition, _service, region, account, name = queue.split(":")
    config = Config(retries={"total_max_attempts": 1}, connect_timeout=_TIMEOUT_S, read_timeout=_TIMEOUT_S)
    client = boto3.client("sqs", region_name=region, config=config)
    url = client.get_queue_url(QueueName=name, QueueOwnerAWSAccountId=account)["QueueUrl"]
    for start in range(0, len(receipts), _MOST_ENTRIES):
        client.change_message_visibility_batch(
            QueueUrl=url,
            Entries=[
                {"Id": str(number), "ReceiptHandle": receipt, "VisibilityTimeout": after_s}
                for number, receipt in enumerate(receipts[start : start + _MOST_ENTRIES])
            ],
        )
