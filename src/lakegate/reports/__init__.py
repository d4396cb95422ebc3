"""Reports to pass on: one-file HTML pages, and JUnit XML. They're built from runs alone and need no server.

A page is built from :class:`lakegate.reports.page.Html`, which escapes everything that isn't markup. It loads nothing:
its content security policy forbids that.
"""
