"""What all values have in common."""

from __future__ import annotations

from lakegate.model.refs import Ref


def test_a_repr_leaves_defaults_out() -> None:
    assert repr(Ref(name="main", hash="00")) == "Ref(name='main', hash='00')"
    assert repr(Ref(name="v1", hash="00", kind="tag")) == "Ref(name='v1', hash='00', kind='tag')"
