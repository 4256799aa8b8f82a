"""Names and literals as Spark SQL text, in the one spelling that reads back the same."""

from __future__ import annotations

import datetime
import math
import re
from decimal import Decimal

import numpy as np

from indextables.predicate.temporal import FarInstant, FarLocal

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Words with a meaning of their own where a column may stand. Quoting too many is harmless.
_WORDS = frozenset(
    re.findall(
        r"\w+",
        "all and anti any array as asc at between binary both by case cast collate column "
        "constraint create cross cube current current_date current_time current_timestamp "
        "current_user date default delete desc distinct distribute div drop else end escape "
        "except exists explain extract false fetch filter first for foreign from full function "
        "glob grouping group having if ilike in indexquery indexqueryall inner insert "
        "intersect interval into is join lateral leading left like limit list map minus "
        "natural next not null offset on only or order outer over overlaps overlay partition "
        "pivot position primary qualify range references regexp replace right rlike row rows "
        "select semi session_user set show similar some sort struct substring table "
        "tablesample then time timestamp timestamp_ltz timestamp_ntz to trailing trim true "
        "try_cast union unique unknown unnest unpivot update use using values when where "
        "window with within xor alter grant notnull partitioned_by returning revoke "
        "rollback serdeproperties uncache",
    )
)
_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\u0000"}
_ESCAPED = re.compile(r"[\\'\n\r\t\0]")


def sql_name(name: str) -> str:
    """One part of a column's name, in back-ticks where it needs them.

    >>> sql_name("title"), sql_name("a.b"), sql_name("select"), sql_name("tick`s")
    ('title', '`a.b`', '`select`', '`tick``s`')
    """
    if _PLAIN_NAME.fullmatch(name) and name.lower() not in _WORDS:
        return name
    return quoted_name(name)


def quoted_name(name: str) -> str:
    """One part of a name in back-ticks, whether or not it needs them.

    >>> quoted_name("tick`s")
    '`tick``s`'
    """
    return "`" + name.replace("`", "``") + "`"


def sql_text(text: str) -> str:
    """A string literal.

    >>> print(sql_text("O'Brien\\\\s"))
    'O\\'Brien\\\\s'
    """
    return "'" + _ESCAPED.sub(lambda found: _ESCAPES[found[0]], text) + "'"


def sql_literal(value: object) -> str:
    """A value as a literal.

    >>> sql_literal(True), sql_literal(Decimal("1.50")), sql_literal(datetime.date(2024, 1, 15))
    ('TRUE', '1.50', "DATE '2024-01-15'")
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case float() if not math.isfinite(value):
            # Spark has no literal for these; a string compared with a number is cast.
            return "'NaN'" if math.isnan(value) else "'Infinity'" if value > 0 else "'-Infinity'"
        case FarInstant() | FarLocal():
            zone = "Z" if isinstance(value, FarInstant) else ""
            kind = "TIMESTAMP" if isinstance(value, FarInstant) else "TIMESTAMP_NTZ"
            text = str(np.datetime64(int(value), "us")).replace("T", " ")
            return f"{kind} '{text}{zone}'"
        case int() | float():
            return repr(value)
        case Decimal():
            return format(value, "f")
        case bytes():
            return f"X'{value.hex().upper()}'"
        case datetime.datetime() if value.tzinfo is not None:
            utc = value.astimezone(datetime.UTC).replace(tzinfo=None)
            return f"TIMESTAMP '{utc.isoformat(sep=' ')}Z'"
        case datetime.datetime():
            return f"TIMESTAMP_NTZ '{value.isoformat(sep=' ')}'"
        case datetime.date():
            return f"DATE '{value.isoformat()}'"
        case _:
            return sql_text(str(value))


def like_text(text: str) -> str:
    """Text with LIKE's placeholders escaped.

    >>> print(like_text("50%_a"))
    50\\%\\_a
    """
    return re.sub(r"[\\%_]", r"\\\g<0>", text)
