"""Secrets by reference, and the access tokens obtained with them.

Settings never hold a secret, only where it is: a variable, a file, AWS Secrets Manager. What reads them is
``secret.py``, for all parts of lakegate alike. No error shows a value.

How to add a place that secrets come from: its name and the form of its references in ``model/references.py``, a
function that reads it in ``secret.py`` (``_READERS``).
"""
