"""Reports to pass on: one-file HTML pages, and JUnit XML. They're built from runs alone and need no server.

``report.html`` is the page of a run and of a period. Jinja escapes every value in it, and it loads nothing: its content
security policy forbids that.
"""
