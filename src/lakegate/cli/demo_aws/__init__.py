"""``lakegate demo --aws``: the whole way from an upload to S3 to a published table, on one machine.

:mod:`~lakegate.cli.demo_aws.tour` tells the story; :mod:`~lakegate.cli.demo_aws.home` is the project it plays in,
:mod:`~lakegate.cli.demo_aws.cloud` what is deployed and asked of AWS, :mod:`~lakegate.cli.demo_aws.slack` the stand-in
for Slack, :mod:`~lakegate.cli.demo_aws.waiting` the waiting for what becomes of a file.
"""
