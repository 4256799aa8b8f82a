"""Tables with columns of every kind, renamed columns, and no rows at all."""

from __future__ import annotations

import datetime
import decimal
import json
import math

import pyarrow as pa
import pytest
from elasticsearch import Elasticsearch
from serving import running

from indextables.cells import to_json
from indextables.serve.elastic import hits_of
from indextables.serve.elastic_query import Question, UnsupportedError, translated
from indextables.serve.tables import search_field
from indextables.table import Table

MOMENT = datetime.datetime(2024, 3, 31, 1, 30)
VALUES = {
    "text": (pa.string(), ["red fox", None, ""]),
    "flag": (pa.bool_(), [True, None, False]),
    "small": (pa.int8(), [1, None, -1]),
    "large": (pa.int64(), [2**62, None, -(2**62)]),
    "real": (pa.float64(), [float("nan"), None, float("inf")]),
    "price": (pa.decimal128(10, 2), [decimal.Decimal("1.10"), None, decimal.Decimal("2.20")]),
    "day": (pa.date32(), [MOMENT.date(), None, datetime.date(1969, 12, 31)]),
    "utc": (pa.timestamp("us", "UTC"), [MOMENT.replace(tzinfo=datetime.UTC), None, None]),
    "wall": (pa.timestamp("us"), [MOMENT, None, MOMENT]),
    "raw": (pa.binary(), [b"\x00\xff", None, b""]),
    "tags": (pa.list_(pa.string()), [["a", "b"], None, []]),
    "who": (pa.struct([("name", pa.string())]), [{"name": "ann"}, None, {"name": None}]),
    "by key": (pa.map_(pa.string(), pa.int64()), [[("k", 1)], None, []]),
}


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    rows = pa.table({name: pa.array(values, kind) for name, (kind, values) in VALUES.items()})
    renamed = Table.create(folder / "odd", data=rows)
    renamed.rename_column("text", "new text")
    renamed.rename_column("wall", "text")  # a name that another column is stored under
    renamed.append(renamed.scan().slice(0, 1))
    Table.create(folder / "empty", rows.schema)
    with running({"odd": str(folder / "odd"), "empty": str(folder / "empty")}) as client:
        yield client, Table.open(folder / "odd")


def search(client, body, name="odd"):
    answer = client.post(f"/api/tables/{name}/search", body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("display", [True, False])
def test_every_kind_of_value_is_shown(odd, display):
    client, _ = odd
    found = search(client, {"query": "fox", "display": display})
    assert found["total"] == 2
    row = found["rows"][0]
    assert [p["text"] for p in row["snippets"]["new text"] if p["found"]] == ["fox"]
    values = row["values"]
    assert values["large"] == (str(2**62) if display else 2**62)
    assert values["price"] == "1.10" and values["raw"] == "0x00ff"
    assert search(client, {"display": display})["total"] == 4


def test_facets_and_filters_come_back(odd):
    client, table = odd
    names = ["new text", "flag", "small", "large", "price", "day", "utc", "text"]
    for display in (True, False):
        counted = search(client, {"facets": names, "display": display, "limit": 0})["facets"]
        for name in names:
            assert sum(v["count"] for v in counted[name]) == 4
            for value in counted[name]:
                for negated in (False, True):
                    one = {"column": name, "values": [value["value"]], "not": negated}
                    total = search(client, {"filters": [one], "limit": 0})["total"]
                    wanted = 4 - value["count"] if negated else value["count"]
                    assert total == wanted, (name, value, negated)
    assert table.count() == 4


def test_histograms_of_all_kinds_of_times(odd):
    client, _ = odd
    for name, count in (("day", 3), ("utc", 2), ("text", 3)):
        found = search(client, {"histogram": name, "limit": 0})["histogram"]
        assert sum(p["count"] for p in found["parts"]) == count
        start = found["parts"][0]["start"]
        one = {"column": name, "from": start}
        assert search(client, {"filters": [one], "limit": 0})["total"] == count
    numbers = search(client, {"histogram": "small", "interval": "1", "limit": 0})["histogram"]
    assert [p["count"] for p in numbers["parts"]] == [1, 0, 2]


def test_renamed_columns_everywhere(odd):
    client, table = odd
    hit = search(client, {"query": r"new\ text:fox", "columns": ["new text"]})
    row = hit["rows"][0]
    why = client.get(
        "/api/tables/odd/why", {"query": "fox", "split": row["split"], "row": row["row"]}
    )
    assert why.json()["parts"][0]["column"] == "new text"
    for kind in ("parquet", "csv", "json"):
        given = {"format": kind, "query": "fox", "columns": ["new text", "small", "text"]}
        answer = client.get("/api/tables/odd/export", given)
        assert answer.status_code == 200, answer.text
    assert list(json.loads(answer.text.splitlines()[0])) == ["new text", "small", "text"]
    changes = client.get("/api/tables/odd/changes?since=2&query=fox").json()
    assert (changes["changes"], changes["rows"][0]["new text"]) == (1, "red fox")
    for path in ("", "/report", "/history", "/words?prefix=fo"):
        assert client.get(f"/api/tables/odd{path}").status_code == 200
    past = client.get("/api/tables/odd?version=0").json()
    assert "wall" in [c["name"] for c in past["columns"]]
    assert table.count() == 4


def test_clients_of_elasticsearch_see_them_too(odd):
    client, _ = odd
    with Elasticsearch(f"http://{client.host}", bearer_auth=client.token) as elastic:
        found = elastic.search(index="odd", query={"match": {"new text": "fox"}},
                               highlight={"fields": {"new text": {}}})  # fmt: skip
        assert found["hits"]["total"]["value"] == 2
        assert found["hits"]["hits"][0]["highlight"]["new text"] == ["red <em>fox</em>"]
        for column in ("text", "utc", "day", "small", "new text"):
            sort = [{column: "desc"}]
            hits = elastic.search(index="odd", sort=sort, size=2)["hits"]["hits"]
            after = hits[-1]["sort"]
            rest = elastic.search(index="odd", sort=sort, search_after=after)["hits"]["hits"]
            ids = [h["_id"] for h in [*hits, *rest]]
            assert len(set(ids)) == len(ids)
        aggs = {name: {"terms": {"field": name}} for name in ("flag", "day", "small", "new text")}
        aggs["over"] = {"date_histogram": {"field": "text", "calendar_interval": "day"},
                        "aggs": {"most": {"max": {"field": "large"}}}}  # fmt: skip
        counted = elastic.search(index="odd", size=0, aggs=aggs)["aggregations"]
        assert counted["flag"]["buckets"][0] == {"key": 1, "key_as_string": "true", "doc_count": 2}
        assert counted["over"]["buckets"][0]["most"]["value"] == 2**62
        assert elastic.indices.get_mapping(index="odd")["odd"]["mappings"]["properties"]


def test_buckets_of_decimals_and_of_what_is_no_number(odd):
    client, table = odd
    inner = {"rows": {"terms": {"field": "new text"}}}
    for name in ("price", "real"):
        aggs = {"a": {"terms": {"field": name}, "aggs": inner}}
        answer = client.post("/odd/_search", {"size": 0, "aggs": aggs})
        assert answer.status_code == 200, answer.text
        buckets = answer.json()["aggregations"]["a"]["buckets"]
        assert sum(b["doc_count"] for b in buckets) == table.count(where=f"{name} IS NOT NULL")
        for bucket in buckets:
            assert sum(b["doc_count"] for b in bucket["rows"]["buckets"]) == bucket["doc_count"]
    for name in ("new text", "raw"):
        body = {"aggs": {"a": {"max": {"field": name}}}}
        assert client.post("/odd/_search", body).status_code == 400


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_pages_come_to_rows_that_are_no_number(order):
    rows = pa.table({"id": range(4), "real": [math.nan, None, math.inf, 1.0]})
    table = Table.create(f"memory://paged-{order}", data=rows)
    question = Question.of(table, {})
    body = {"sort": [{"real": order}], "size": 2}
    first = list(hits_of("t", question, body))
    rest = list(hits_of("t", question, body | {"search_after": first[-1]["sort"]}))
    assert [h["_source"]["id"] for h in rest] == [0, 1]


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.float64(), [math.nan, None, math.inf, -math.inf, 1.5, math.nan, None, math.inf]),
        (pa.float32(), [0.1, math.nan, None, math.nan, 0.1, None, 3.3, math.nan]),
        (pa.decimal128(38, 10), [*map(decimal.Decimal, ("1.5", f"{10**27}.1", "-0.1")), None] * 2),
        (pa.binary(), [b"", b"a", None, b"\xff", b"a", None, b"", b"0x"]),
        (pa.int64(), [2**53, 2**53 + 1, -(2**63), None] * 2),
    ],
)
def test_pages_have_every_row_once(kind, values, order):
    rows = pa.table({"id": range(len(values)), "v": pa.array(values, kind)})
    table = Table.create(f"memory://pages-{kind}-{order}", data=rows)
    question, body = Question.of(table, {}), {"sort": [{"v": order}, {"id": "desc"}]}
    every = list(hits_of("t", question, body))
    assert sorted(hit["_source"]["id"] for hit in every) == list(range(len(values)))
    pages = [json.loads(to_json(hit)) for hit in hits_of("t", question, body | {"size": 1})]
    while len(pages) <= len(every):
        after = {"size": 1, "search_after": pages[-1]["sort"]}
        page = list(hits_of("t", question, body | after))
        if not page:
            break
        pages += [json.loads(to_json(hit)) for hit in page]
    assert [hit["_id"] for hit in pages] == [hit["_id"] for hit in every]
    with pytest.raises(UnsupportedError, match="is not a value of"):
        list(hits_of("t", question, body | {"search_after": [[], 1]}))


def test_a_histogram_with_an_open_bound(odd):
    client, _ = odd
    for bounds, keys in (({"min": None, "max": 2}, [-1, 0, 1, 2]), ({"min": None}, [-1, 0, 1])):
        inner = {"field": "small", "interval": 1, "extended_bounds": bounds, "min_doc_count": 0}
        answer = client.post("/odd/_search", {"size": 0, "aggs": {"a": {"histogram": inner}}})
        assert answer.status_code == 200, answer.text
        assert [b["key"] for b in answer.json()["aggregations"]["a"]["buckets"]] == keys


def test_names_that_answers_have_themselves(tmp_path):
    rows = pa.table({"count": [1, 2, 2], "tags": [["a"], [], None]})
    Table.create(tmp_path / "t", data=rows)
    with running({"t": str(tmp_path / "t")}) as client:
        found = search(
            client, {"facets": ["count", "_split"], "columns": ["_split", "count", "_row"],
                     "histogram": "count", "interval": "1"}, "t",
        )  # fmt: skip
        assert found["facets"]["count"] == [{"value": 2, "count": 2}, {"value": 1, "count": 1}]
        assert found["facets"]["_split"][0]["count"] == 3
        assert [part["count"] for part in found["histogram"]["parts"]] == [1, 2]
        assert [row["values"]["_row"] for row in found["rows"]] == [0, 1, 2]
        counted = client.post("/t/_search", {"aggs": {"a": {"terms": {"field": "count"}}}}).json()
        assert [b["key"] for b in counted["aggregations"]["a"]["buckets"]] == [2, 1]
        assert client.post("/t/_search", {"sort": ["tags"]}).status_code == 400
        deep = {"query": "SELECT " + "(" * 4_000 + "1" + ")" * 4_000}
        assert client.post("/api/sql", deep).status_code == 400


def test_a_table_without_rows(odd):
    client, _ = odd
    names = ["flag", "day"]
    for body in ({}, {"query": "fox"}, {"facets": names, "histogram": "utc"}):
        found = search(client, body, name="empty")
        assert (found["total"], found["rows"]) == (0, [])
    info = client.get("/api/tables/empty").json()
    assert (info["rows"], info["facets"], info["time"]) == (0, [], "utc")
    assert client.get("/api/tables/empty/export?format=csv").status_code == 200
    assert client.get("/tables/empty/report").status_code == 200
    assert client.post("/empty/_search", {"query": {"match": {"text": "fox"}}}).status_code == 200
    assert client.post("/empty/_search", {"sort": ["small"], "aggs": {
        "s": {"stats": {"field": "small"}}}}).status_code == 200  # fmt: skip


NAMES = ["new text", "a.b", "x:y", "(p)", 'q"q', "back\\slash", "<img src=x onerror=alert(1)>",
         "AND", "-lead", "a*b", "a~1", "[z]", "d^2", "a'b", "t`t", "a/b", "ü ö"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_any_name_of_a_column_can_be_searched(name):
    rows = pa.table({name: ["red fox", "dog"], "other": ["fox", "y"]})
    table = Table.create(f"memory://named-{NAMES.index(name)}", data=rows)
    assert table.search(f"{search_field(name)}:dog").num_rows == 1
    text = translated({"match": {name: "fox"}}, table.schema).text
    assert table.search(text)["other"].to_pylist() == ["fox"]


def test_long_names_are_worth_counting_and_documents_are_not(tmp_path):
    rows = {
        "service": ["user-profile-service-of-the-region-eu-central-1", "search"] * 20,
        "attrs": ['{"status": 200}', '{"status": 500}'] * 20,
    }
    Table.create(
        tmp_path / "t", data=pa.table(rows), mapping={"service": "string", "attrs": "json"}
    )
    with running({"t": str(tmp_path / "t")}) as client:
        assert client.get("/api/tables/t").json()["facets"] == ["service"]
