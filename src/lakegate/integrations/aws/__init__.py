"""lakegate on AWS: the template, the function's zip, and what makes, shows and deletes a deployment.

``template.yaml`` says what there is. ``package.py`` builds the function, ``deployment.py`` does what ``lakegate aws``
asks for through CloudFormation (``stack.py``), ``data.py`` looks at and deletes what a stack leaves behind.

How to add a parameter: in the template, and its option in ``parameters.py``.
"""
