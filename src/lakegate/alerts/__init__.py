"""Alerts to people and programs: Slack, signed webhooks, and the services that Apprise supports.

To add a channel type, add a module beside :mod:`lakegate.alerts.webhook` with a class that has the methods of
:class:`lakegate.alerts.message.Sender`, an entry in :data:`lakegate.alerts.dispatch.SENDERS`, and its name in
:data:`lakegate.config.ChannelType`. If the channel has threads, add it to
:attr:`lakegate.config.ChannelSettings.has_threads`.
"""
