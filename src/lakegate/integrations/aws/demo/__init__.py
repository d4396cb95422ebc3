"""``lakegate demo --aws``: everything from an upload to S3 to a published table, on one machine.

``tour.py`` runs the demo, with a local stand-in for Slack. ``cloud.py`` has its project, and what it does on AWS.
"""
