"""The pages. Each module here defines a ``PAGE``, which :mod:`lakegate.dashboard.ui.page` finds."""
