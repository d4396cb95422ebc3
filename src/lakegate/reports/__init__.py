"""Reports that travel: pages in one file, JUnit's XML. What they show comes from runs alone, so they need no server.

A page is built of :class:`lakegate.reports.page.Html`, which escapes everything that isn't markup already; it loads
nothing, and its content security policy wouldn't let it.
"""
