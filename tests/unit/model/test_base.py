"""What all values have in common."""

from __future__ import annotations

from lakegate.model.batch import Batch, SourceColumn
from lakegate.model.refs import Ref


def test_a_repr_leaves_defaults_out() -> None:
    assert repr(Ref(name="main", hash="00")) == "Ref(name='main', hash='00')"
    assert repr(Ref(name="v1", hash="00", kind="tag")) == "Ref(name='v1', hash='00', kind='tag')"


def test_a_repr_says_in_a_few_words_what_is_long() -> None:
    columns = tuple(SourceColumn(name=f"column_{number}", type="int64") for number in range(1000))
    batch = Batch(format="parquet", files=(), columns=columns)
    assert repr(batch) == "Batch(format='parquet', files=(), columns=(1,000 of SourceColumn))"
    few = batch.model_copy(update={"columns": columns[:2]})
    assert "column_1" in repr(few)
    assert repr(few.model_copy(update={"columns": columns[:9]})).endswith("columns=(9 of SourceColumn))")
