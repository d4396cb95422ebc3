"""The pages: each module here has a ``PAGE``, which :mod:`lakegate.dashboard.ui.page` finds."""
