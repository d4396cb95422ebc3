"""Systems that learn of each publish: commands, webhooks, other catalogs.

To add a type, add a module beside :mod:`lakegate.downstream.webhook` with a function ``make(name, settings, around)``
that returns a :class:`lakegate.ports.Downstream`; one entry in :data:`lakegate.downstream.registry.TYPES`; and a class
with its settings in :mod:`lakegate.config`, which is a member of ``AnyDownstream`` there. What's sent when, and how
often it's tried again, is the same for all (``lakegate.wap.downstream``).
"""
