"""Alerts to people and programs: Slack, signed webhooks, and the services that Apprise knows.

To add a channel type, add a module beside :mod:`lakegate.alerts.webhook` with a class that has the methods of
:class:`lakegate.alerts.message.Sender`, one entry in :data:`lakegate.alerts.dispatch.SENDERS`, its name in
:data:`lakegate.config.ChannelType`. One with threads says so in
:attr:`lakegate.config.ChannelSettings.has_threads`.
"""
