"""Alerts to people and programs: Slack, signed webhooks, and the services that Apprise supports.

To add a channel type:

- add a module next to :mod:`lakegate.alerts.webhook`, with a function ``make(channel, secrets)`` that returns a
  :class:`lakegate.alerts.message.Sender`. ``secrets`` has the values of the channel's references, by key;
- add an entry to :data:`lakegate.alerts.dispatch.SENDERS`;
- add its name to :data:`lakegate.config.ChannelType`, and to the docstring of
  :attr:`lakegate.config.ChannelSettings.type`;
- if the channel has threads, add it to :attr:`lakegate.config.ChannelSettings.has_threads`;
- run ``make reference``, and describe it in ``docs/how-to/get-alerts.md``.
"""
