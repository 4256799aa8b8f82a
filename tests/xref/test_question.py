"""What conditions ask of XRefs. Whatever is not listed here as asked must be everything."""

from __future__ import annotations

import pyarrow as pa
import pytest
from xrefs import MAPPING, SCHEMA

from indextables.config import Config
from indextables.predicate.sql_text import parse_predicate
from indextables.split.format.lists import KEY_LENGTH
from indextables.split.mapping_options import build_mapping
from indextables.split.search.query import SearchContext
from indextables.xref.question import (
    EVERYTHING,
    NOTHING,
    AllOf,
    AnyOf,
    HasAny,
    HasMatch,
    HasNear,
    Question,
    ask,
)

TYPES = {f"spark.indextables.indexing.typemap.{name}": kind for name, kind in MAPPING.items()}
CONTEXT = SearchContext(SCHEMA, build_mapping(SCHEMA, Config(TYPES)))


def shown(question: Question) -> str:
    """A question as a short text."""
    match question:
        case AllOf(children=children):
            return "(" + " & ".join(map(shown, children)) + ")"
        case AnyOf(children=children):
            return "(" + " | ".join(map(shown, children)) + ")" if children else "nothing"
        case HasAny(field=field, terms=terms):
            kind = "+" if field.meaning == "pairs" else ":"
            if field.meaning == "paths":
                kind, terms = "@", tuple(term[KEY_LENGTH:] for term in terms)
            return f"{field.column}{kind}{','.join(terms)}".replace("\x1f", "_")
        case HasMatch(field=field, pattern=pattern):
            is_path = field.meaning == "paths"
            return f"{field.column}{'@' if is_path else ''}/{pattern[KEY_LENGTH * is_path :]}/"
        case HasNear(field=field, term=term, distance=distance):
            return f"{field.column}:{term}~{distance}"
        case _:
            return "everything"


ASKED = {
    # words
    "body indexquery 'Word3'": "body:word3",
    "body indexquery 'a AND b'": "(body:a & body:b)",
    "body indexquery 'a OR b'": "(body:a | body:b)",
    "body indexquery 'a AND (b OR c)'": "(body:a & (body:b | body:c))",
    "body indexquery '\"wi-fi in\"'": ("(body:wi & body:fi & body:in & body+wi_fi & body+fi_in)"),
    "body indexquery 'wi-fi'": "(body:wi & body:fi & body+wi_fi)",
    "body indexquery '\"wi-fi in\"~3'": "(body:wi & body:fi & body:in)",
    "body indexquery 'a AND NOT b'": "body:a",
    "body indexquery '+a b'": "body:a",
    "body indexquery 'wo*d?'": "body/wo(?s:.)*d(?s:.)/",
    "body indexquery '*'": "everything",
    "body indexquery '/w[0-9]+/'": "body/w[0-9]+/",
    "body indexquery 'wort~1'": "body:wort~1",
    "body indexquery 'IN [a \"b c\"]'": "(body:a | (body:b & body:c & body+b_c))",
    "body indexquery '[a TO b]'": "everything",
    "body indexquery 'NOT a'": "everything",
    "body indexquery 'a OR NOT b'": "everything",
    "body indexquery '!!!'": "nothing",
    # equality goes through the analyzer
    "body = 'Wi-Fi in house'": "(body:wi & body:fi & body:in & body:house)",
    "body = '!!'": "everything",
    "body <> 'a'": "everything",
    "NOT body = 'a'": "everything",
    "NOT body <> 'a'": "body:a",
    "body <=> 'a'": "body:a",
    "body IN ('a', 'b c', NULL)": "(body:a | (body:b & body:c))",
    "body LIKE 'a%'": "everything",
    "body IS NULL": "everything",
    "body IS NOT NULL": "everything",
    # whole values
    "tag = 'a b'": "tag:a b",
    "tag = ''": "tag:",
    "tag IN ('x', 'y', NULL)": "tag:x,y",
    "tag NOT IN ('x')": "everything",
    "tag LIKE 'a b%'": r"tag/a b(?s:.)*/",
    "tag LIKE '%b'": "everything",
    "tag > 'a'": "everything",
    # typed values
    "id = 5": "id:5",
    "id = 5.5": "nothing",
    "id IN (1, 2)": "id:1,2",
    "id > 5": "everything",
    "id BETWEEN 3 AND 5": "id:3,4,5",
    "id > 3 AND id < 5": "id:4",
    "id > 3 AND id < 3": "nothing",
    "id BETWEEN 3 AND 5000": "everything",
    "id indexquery '[3 TO 4]'": "id:3,4",
    "id indexquery 'word'": "everything",
    "day = '2024-01-02'": "day:19724",
    "day BETWEEN '2024-01-02' AND '2024-01-03'": "day:19724,19725",
    "day indexquery '2024-01-02'": "day:19724",
    "price = 1.5": "price:1.5",
    "price = CAST('NaN' AS DOUBLE)": "price:nan",
    "price = -0.0": "price:0",
    "price indexquery '1.50'": "price:1.5",
    "price BETWEEN 1 AND 2": "everything",
    # addresses
    "ip = '10.0.0.1'": "ip:281470849515521",
    "ip = 'no address'": "everything",
    "ip indexquery '10.0.0.0/31'": "ip:281470849515520,281470849515521",
    "ip indexquery '10.0.0.0/8'": "everything",
    # JSON
    "doc indexquery 'leaf1'": "doc:leaf1",
    "_indexall indexquery 'doc.k:leaf1'": "(doc:leaf1 & doc@wleaf1)",
    "_indexall indexquery 'doc.n:1'": "(doc:1 & (doc@w1 | doc@n1.0))",
    "_indexall indexquery 'doc.n:0.1'": ("((doc@w0 & doc@w1) | doc@n0.1,n0.10000000149011612)"),
    "_indexall indexquery 'doc.n:true'": "(doc:true & (doc@wtrue | doc@b1))",
    "_indexall indexquery 'doc.n:[1 TO 2]'": "everything",
    "_indexall indexquery 'doc.k:*'": "everything",
    "_indexall indexquery 'doc.k:le*'": "(doc/le(?s:.)*/ & doc@/w(?:le(?s:.)*)/)",
    "doc = '{}'": "everything",
    # several columns
    "id = 5 OR body indexquery 'a'": "(id:5 | body:a)",
    "id = 5 OR body LIKE '%a'": "everything",
    "id = 5 AND body LIKE '%a'": "id:5",
    "NOT (id <> 5 OR body <> 'a')": "(id:5 & body:a)",
    "id = 5 AND NULL": "nothing",
    "FALSE": "nothing",
}


@pytest.mark.parametrize(("where", "asked"), list(ASKED.items()))
def test_conditions(where, asked):
    assert shown(ask(parse_predicate(where, SCHEMA), CONTEXT)) == asked


def test_over_all_fields_each_is_asked():
    asked = shown(ask(parse_predicate("_indexall indexquery 'word'", SCHEMA), CONTEXT))
    assert asked == "(body:word | tag:word | doc:word)"


def test_partition_columns_are_not_asked():
    schema = pa.schema([("p", pa.string()), ("body", pa.string())])
    context = SearchContext(schema, build_mapping(schema, Config(), partition_by=["p"]))
    assert ask(parse_predicate("p = 'a'", schema), context) == EVERYTHING
    both = ask(parse_predicate("p = 'a' AND body indexquery 'x'", schema), context)
    assert shown(both) == "body:x"


def test_a_long_list_is_not_asked():
    many = ", ".join(map(str, range(10_001)))
    assert ask(parse_predicate(f"id IN ({many})", SCHEMA), CONTEXT) == EVERYTHING


def test_nothing_is_an_empty_union():
    assert AnyOf(()) == NOTHING
