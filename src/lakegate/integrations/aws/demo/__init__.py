"""``lakegate demo --aws``: the whole way from an upload to S3 to a published table, on one machine.

``tour.py`` plays the demo in the project of ``home.py``; ``cloud.py`` is what it deploys and asks of AWS, ``slack.py``
the stand-in for Slack.
"""
