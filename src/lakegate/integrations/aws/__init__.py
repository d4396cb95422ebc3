"""lakegate on AWS: the template, the function's zip, and what creates, shows and deletes a deployment.

``template.yaml`` describes the resources. ``package.py`` builds the function, ``deployment.py`` does what ``lakegate
aws`` asks for through CloudFormation (``stack.py``), ``data.py`` finds and deletes what a stack keeps.

How to add a parameter: in the template, and its option in ``parameters.py``.
"""
