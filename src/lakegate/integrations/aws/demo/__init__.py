"""``lakegate demo --aws``: the whole way from an upload to S3 to a published table, on one machine.

``tour.py`` plays the demo, with a stand-in for Slack; ``cloud.py`` is its project, and what it deploys and asks of AWS.
"""
