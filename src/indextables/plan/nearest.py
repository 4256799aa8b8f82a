"""The rows whose vectors are nearest to one: every candidate row is compared, none is estimated.

Scores are computed row by row in double precision and rounded to what a result holds, so that they
do not depend on how rows lie in splits. A row without a vector, or whose score is not a number
because its vector has a NaN, is not found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import ConfigError, SchemaError, UnknownColumnError, VectorError
from indextables.plan.execute import Answers, Environment
from indextables.plan.scan import plan_scan
from indextables.plan.tasks import SplitTask
from indextables.plan.view import TableView
from indextables.predicate import Predicate
from indextables.runner import check_stop
from indextables.schema import ROW, dimension_of
from indextables.split.scoring import Hits, Scores, no_hits, with_ties

Metric = Literal["cosine", "dot", "l2"]
_METRICS: tuple[Metric, ...] = get_args(Metric)
_NUMBERS_AT_ONCE = 1 << 20
"""Numbers of vectors that are compared at once, in double precision."""
_LARGE = 2.0**800
"""Sums of squares from its inverse up to this number have all their digits."""
_RRF = 60
"""The constant of reciprocal rank fusion, as its authors chose it."""

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Nearest:
    """A question for the nearest vectors of a column."""

    column: str
    """As stored."""
    shown: str
    vector: Doubles
    metric: Metric

    @classmethod
    def of(cls, view: TableView, vector: Any, column: str | None, metric: str) -> Nearest:
        """What a caller asks for, checked; without a column the only one that has vectors."""
        if metric not in _METRICS:
            raise ConfigError(f"metric is one of {', '.join(_METRICS)}, not {metric!r}.")
        field = _vector_field(view.shown.schema, column)
        try:
            numbers = np.asarray(vector, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            numbers = np.zeros((0, 0))
        if numbers.ndim != 1 or not len(numbers) or not np.isfinite(numbers).all():
            raise VectorError(field.name, "vector is a list of finite numbers, such as [0.1, -2.5]")
        if metric == "cosine" and not numbers.any():
            raise VectorError(field.name, "a vector of zeros has no direction, which cosine needs")
        dimension = dimension_of(field)
        if dimension is not None and dimension != len(numbers):
            raise VectorError(
                field.name,
                f"its vectors have {dimension} numbers, and the one that is searched for has "
                f"{len(numbers)}",
            )
        return cls(view.names.stored_name(field.name), field.name, numbers, metric)

    def scores(self, column: Any) -> Scores:
        """The score of each row, NaN where there is none."""
        lengths: Any = pc.list_value_length(column)
        wrong = pc.filter(lengths, pc.not_equal(lengths, pa.scalar(len(self.vector), lengths.type)))
        if len(wrong):
            raise VectorError(
                self.shown,
                f"a row has a vector of {wrong[0]} numbers, and the one that is searched for has "
                f"{len(self.vector)}",
            )
        scores = np.full(len(column), np.nan, dtype=np.float32)
        present = np.flatnonzero(np.asarray(pc.is_valid(column)))
        step = max(1, _NUMBERS_AT_ONCE // len(self.vector))
        values = column.drop_null() if len(present) < len(column) else column
        for at in range(0, len(present), step):
            check_stop()
            some = values.slice(at, step).flatten()
            numbers = some.to_numpy(zero_copy_only=False).astype(np.float64)
            compared = self._compared(numbers.reshape(-1, len(self.vector)))
            with np.errstate(over="ignore"):  # a dot product beyond what a score holds is infinite
                scores[present[at : at + step]] = compared
        return scores

    def _compared(self, vectors: Doubles) -> Doubles:
        # Row by row: a product of matrices would add in another order for other numbers of rows.
        with np.errstate(all="ignore"):
            if self.metric == "l2":
                apart = vectors - self.vector
                return 0.0 - np.sqrt(_sums(apart, apart))
            if self.metric == "dot":
                return _sums(vectors, np.broadcast_to(self.vector, vectors.shape))
            vectors, lengths = _in_range(vectors)
            own, length = _in_range(self.vector[None])
            products = _sums(vectors, np.broadcast_to(own, vectors.shape))
            cosines: Doubles = products / (lengths * length)
            return cosines


def _in_range(vectors: Doubles) -> tuple[Doubles, Doubles]:
    """Vectors whose squares can be added, and their lengths.

    Very large and very small ones are multiplied by powers of two, which changes no digit of a
    cosine; the others stay as they are.
    """
    squares = _sums(vectors, vectors)
    odd = np.flatnonzero((squares > _LARGE) | (squares < 1 / _LARGE))
    if len(odd):
        powers = np.frexp(np.abs(vectors[odd]).max(axis=1))[1]
        vectors = vectors.copy()
        vectors[odd] = np.ldexp(vectors[odd], -powers[:, None])
        squares = _sums(vectors, vectors)
    return vectors, np.sqrt(squares)


def _sums(one: Doubles, other: Doubles) -> Doubles:
    found: Doubles = np.einsum("ij,ij->i", one, other)
    return found


def _vector_field(schema: pa.Schema, column: str | None) -> pa.Field[Any]:
    if column is None:
        found = [field for field in schema if dimension_of(field) is not None]
        if len(found) == 1:
            return found[0]
        names = ", ".join(field.name for field in found) or "none that declares its dimension"
        raise ConfigError(f"Say vector_column=…: the columns of vectors are {names}.")
    if column not in schema.names:
        raise UnknownColumnError(column, available=schema.names)
    field = schema.field(column)
    kind: Any = field.type
    if not pa.types.is_list(kind) or not pa.types.is_floating(kind.value_type):
        raise SchemaError(
            f"'{column}' is {kind} and has no vectors. Name a column of lists of floats."
        )
    return field


def nearest_hits(
    view: TableView,
    nearest: Nearest,
    predicate: Predicate,
    paths: Sequence[str],
    k: int | None,
) -> Hits:
    """The k nearest rows that meet a condition, with ties of the last one; all without a k.

    Splits are numbered as in `paths`.
    """
    environment = Environment.of(view)
    plan = plan_scan(view, predicate=predicate, columns=(nearest.column,))
    places = {path: at for at, path in enumerate(paths)}

    def compared(item: tuple[SplitTask, Answers]) -> Hits:
        task, answers = item
        found = no_hits()
        for rows in environment.rows(task, answers).read((nearest.column, ROW)):
            scores = nearest.scores(rows[nearest.column].combine_chunks())
            here = np.flatnonzero(~np.isnan(scores))
            numbers = np.asarray(rows[ROW])[here]
            splits = np.full(len(here), places[task.path], dtype=np.int64)
            found = best_of(found.and_more(Hits(splits, numbers, scores[here])), k)
        return found

    best = no_hits()
    for found in environment.map(compared, environment.searched(plan.tasks)):
        best = best_of(best.and_more(found), k)
    return best


def best_of(hits: Hits, k: int | None) -> Hits:
    """The k best of hits in any order, best first, with ties of the last one; all without a k."""
    if k is None:
        return hits
    return with_ties(hits.take(np.argsort(-hits.scores, kind="stable")), k) if k else no_hits()


def fused(one: Hits, other: Hits) -> Hits:
    """Rows of two rankings by reciprocal rank fusion. Rows of equal score share a rank."""
    keys = [hits.splits << 40 | hits.rows for hits in (one, other)]
    every, places = np.unique(np.concatenate(keys), return_inverse=True)
    total = np.zeros(len(every))
    shares = np.concatenate([1 / (_RRF + _ranks(hits.scores)) for hits in (one, other)])
    np.add.at(total, places, shares)
    return Hits(every >> 40, every & ((1 << 40) - 1), total)  # type: ignore[arg-type]


def _ranks(scores: Scores) -> npt.NDArray[np.int64]:
    """The rank of each score, from 1: one more than how many are better."""
    return np.searchsorted(np.sort(-scores), -scores, side="left") + 1
