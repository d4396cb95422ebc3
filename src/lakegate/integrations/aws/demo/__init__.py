"""``lakegate demo --aws``: the whole way from an upload to S3 to a published table, on one machine.

``tour`` tells the story; ``home`` is the project it plays in, ``cloud`` what is deployed and asked of AWS, ``slack``
the stand-in for Slack, ``waiting`` the waiting for what becomes of a file.
"""
