"""Telling people and programs outside: Slack, signed webhooks, and what Apprise knows.

A kind of channel of your own: a module beside :mod:`lakegate.notify.webhook` with a class that has the methods of
:class:`lakegate.notify.sending.Sender`, one entry in :data:`lakegate.notify.dispatch.SENDERS`, its name in
:data:`lakegate.model.channels.ChannelType`. One with threads says so in
:attr:`lakegate.model.channels.ChannelSettings.has_threads`.
"""
