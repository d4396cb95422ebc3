"""lakegate on AWS: the template, the function's zip, and deployments.

``template.yaml`` describes the resources. ``package.py`` builds the function, ``deployment.py`` implements ``lakegate
aws`` on CloudFormation (``stack.py``), and ``data.py`` finds and deletes the data that a deleted stack keeps.

To add a parameter, add it to the template, and its option to ``parameters.py``.
"""
