"""Alerts to people: Slack, and the services that Apprise supports.

To add a channel type:

- add a module next to :mod:`lakegate.alerts.apprise`, with a function ``make(channel, secrets)`` that returns a
  :class:`lakegate.alerts.message.Sender`. ``secrets`` has the values of the channel's references, by key;
- add an entry to :data:`lakegate.alerts.dispatch.SENDERS`;
- add its name to :data:`lakegate.config.ChannelType`, and to the docstring of
  :attr:`lakegate.config.ChannelSettings.type`;
- run ``make reference``, and describe it in ``docs/how-to/get-alerts.md``.
"""
