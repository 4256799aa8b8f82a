"""Elasticsearch's own client asks, and hears what `Table` says."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from elasticsearch import BadRequestError, Elasticsearch, NotFoundError, helpers
from serving import running

from indextables.serve.elastic_query import UnsupportedError, translated
from indextables.table import Table


@pytest.fixture(scope="module")
def elastic(client):
    with Elasticsearch(f"http://{client.host}", bearer_auth=client.token) as opened:
        yield opened


HOSTILE = "<img src=x onerror=alert(1)>"


def ids(found):
    return [hit["_source"]["id"] for hit in found["hits"]["hits"]]


def bool_query(**parts):
    return {"bool": parts}


FOX = {"match": {"body": "fox"}}
WARN = {"term": {"level": "warn"}}
RANKED = [
    ({"query_string": {"query": "disk AND fox"}}, "disk AND fox", None),
    ({"query_string": {"query": "lazy", "default_field": "body"}}, "body:lazy", None),
    (FOX, "body:fox", None),
    ({"match": {"body": "lazy fox"}}, "body:lazy body:fox", None),
    ({"match": {"body": {"query": "red fox", "operator": "and"}}}, "body:red AND body:fox", None),
    ({"match_phrase": {"body": "red fox"}}, 'body:"red fox"', None),
    ({"match_phrase": {"body": {"query": "disk red", "slop": 3}}}, 'body:"disk red"~3', None),
    (WARN, "level:warn", None),
    ({"terms": {"level": ["warn", "error"]}}, "level:warn level:error", None),
    ({"exists": {"field": "body"}}, "body:*", None),
    (bool_query(must=[FOX], must_not=[WARN]), "+body:fox -level:warn", None),
    (bool_query(must=[FOX], should=[WARN]), "+body:fox level:warn", None),
    (bool_query(should=[FOX, WARN]), "body:fox level:warn", None),
    (bool_query(must=FOX, filter=WARN), "body:fox", "level = 'warn'"),
    (bool_query(must=[FOX], filter=[{"range": {"id": {"gte": 10, "lt": 50}}}]), "body:fox",
     "id >= 10 AND id < 50"),
    (bool_query(must=[FOX], filter=[{"range": {"ts": {"gt": "2024-01-02T00:00:00Z"}}}]), "body:fox",
     "ts > '2024-01-02T00:00:00Z'"),
    (bool_query(must=[FOX], filter=[{"range": {"ts": {"gte": 1704153600000,
                                                      "format": "epoch_millis"}}}]),
     "body:fox", "ts >= '2024-01-02T00:00:00Z'"),
    ({"match": {"body": {"query": "fox", "boost": 2}}}, "body:fox^2", None),
    (bool_query(must=[FOX], filter=WARN, boost=3), "body:fox^3", "level = 'warn'"),
    ({"prefix": {"body": "word1"}}, "body:word1*", None),
    ({"wildcard": {"body": {"value": "w?rd1*"}}}, "body:w?rd1*", None),
    ({"regexp": {"body": "wor[a-d]1."}}, "body:/wor[a-d]1./", None),
    ({"match": {"body": "red-fox, lazy"}}, "body:red body:fox body:lazy", None),
    ({"match": {"body": {"query": "word7-word8 fox", "operator": "OR"}}},
     "body:word7 body:word8 body:fox", None),
    ({"match": {"body": {"query": "lazi dig", "fuzziness": "AUTO", "operator": "and"}}},
     "+body:lazi~1 +body:dig~1", None),
    ({"match": {"level": "warn"}}, "level:warn", None),
    ({"match_phrase_prefix": {"body": "red fo"}}, 'body:"red fo"*', None),
    ({"multi_match": {"query": "red fo", "fields": ["body^2"], "type": "phrase_prefix"}},
     'body:"red fo"*^2', None),
    ({"query_string": {"query": "disk -lazy", "fields": ["body^3"]}}, "body:(disk -lazy)^3", None),
    ({"query_string": {"query": "disk lazy", "fields": ["body", "title^2"]}},
     "body:(disk lazy) title:(disk lazy)^2", None),
    ({"wildcard": {"body": {"value": "W?RD1*", "case_insensitive": True}}}, "body:w?rd1*", None),
    (bool_query(must=[], filter=[WARN], should=[FOX], must_not=[]), "+level:warn^0 body:fox", None),
    ({"fuzzy": {"body": {"value": "lazi", "fuzziness": "AUTO"}}}, "body:lazi~1", None),
    ({"multi_match": {"query": "fox report", "fields": ["body", "title^2"]}},
     "body:fox body:report title:fox^2 title:report^2", None),
    ({"multi_match": {"query": "red fox", "fields": ["body"], "type": "phrase"}},
     'body:"red fox"', None),
    (bool_query(must=[FOX], filter=[{"range": {"ts": {"lt": "now-1d/d"}}}]), "body:fox", None),
]  # fmt: skip


@pytest.mark.parametrize(("query", "text", "where"), RANKED, ids=[str(q[0])[:60] for q in RANKED])
def test_a_query_is_a_search(elastic, table, query, text, where):
    found = elastic.search(index="logs", query=query, size=200)
    wanted = table.search(text, where=where, limit=200)
    assert found["hits"]["total"]["value"] == wanted.num_rows > 0
    assert ids(found) == wanted["id"].to_pylist()
    scores = [hit["_score"] for hit in found["hits"]["hits"]]
    assert scores == pytest.approx(wanted["_score"].to_pylist())
    assert elastic.count(index="logs", query=query)["count"] == wanted.num_rows


def test_filters_alone_score_nothing(elastic, table):
    query = bool_query(filter=[WARN], must_not=[{"range": {"id": {"lt": 50}}}])
    found = elastic.search(index="logs", query=query, size=200)
    assert set(ids(found)) == set(table.scan(where="level = 'warn' AND id >= 50")["id"].to_pylist())
    assert {hit["_score"] for hit in found["hits"]["hits"]} == {0.0}
    optional = bool_query(filter=[WARN], should=[FOX])
    found = elastic.search(index="logs", query=optional, size=200)
    assert found["hits"]["total"]["value"] == table.count(where="level = 'warn'")
    assert elastic.search(index="logs")["hits"]["total"]["value"] == 119
    assert elastic.search(index="logs", query={"match_none": {}})["hits"]["hits"] == []
    nested = bool_query(must=[bool_query(must=[FOX], filter=[WARN])])
    wanted = table.search("body:fox", where="level = 'warn'", limit=200)
    found = elastic.search(index="logs", query=nested, size=200)
    assert ids(found) == wanted["id"].to_pylist()
    scores = [hit["_score"] for hit in found["hits"]["hits"]]
    assert scores == pytest.approx(wanted["_score"].to_pylist())


def test_pages_and_sources(elastic, table):
    found = elastic.search(index="logs", query=FOX, size=5, from_=3, source=["id", "lev*"])
    assert ids(found) == table.search("body:fox", limit=8)["id"].to_pylist()[3:]
    assert set(found["hits"]["hits"][0]["_source"]) == {"id", "level"}
    bare = elastic.search(index="logs", query=FOX, size=1, source=False)
    assert "_source" not in bare["hits"]["hits"][0]
    assert elastic.search(index="logs", q="body:lazy", size=0)["hits"]["total"]["value"] == 40


def test_sorting_and_search_after(elastic, table):
    sort = [{"level": "desc"}, {"ts": {"order": "asc"}}]
    every = table.scan(where="body indexquery 'fox'")
    order = [("level", "descending"), ("ts", "ascending")]
    wanted = every.take(pc.sort_indices(every, sort_keys=order))["id"].to_pylist()
    seen, after = [], None
    while True:
        more = {} if after is None else {"search_after": after}
        hits = elastic.search(index="logs", query=FOX, sort=sort, size=11, **more)["hits"]["hits"]
        if not hits:
            break
        seen += [hit["_source"]["id"] for hit in hits]
        after = hits[-1]["sort"]
    assert seen == wanted
    newest = elastic.search(index="logs", sort=[{"id": "desc"}], size=2)
    assert ids(newest) == [119, 118] and newest["hits"]["hits"][0]["_score"] is None


def test_sorting_by_score_and_then(elastic, table):
    sort = [{"_score": "desc"}, {"id": {"order": "desc"}}]
    query = {"match": {"body": "lazy fox"}}
    every = table.search("body:lazy body:fox", limit=None)
    order = [("_score", "descending"), ("id", "descending")]
    every = every.take(pc.sort_indices(every, sort_keys=order))
    seen, after = [], None
    while True:
        more = {} if after is None else {"search_after": after}
        hits = elastic.search(index="logs", query=query, sort=sort, size=37, **more)["hits"]["hits"]
        if not hits:
            break
        assert all(hit["sort"] == [hit["_score"], hit["_source"]["id"]] for hit in hits)
        seen += [hit["_source"]["id"] for hit in hits]
        after = hits[-1]["sort"]
    assert seen == every["id"].to_pylist()
    worst = elastic.search(index="logs", query=query, sort=[{"_score": "asc"}, "id"], size=1)
    scores = every["_score"].to_pylist()
    assert worst["hits"]["hits"][0]["_score"] == pytest.approx(min(scores))
    none = elastic.search(index="logs", query={"match_none": {}}, sort=["_score", "id"])
    assert none["hits"]["hits"] == []
    alike = elastic.search(index="logs", sort=["_score", {"id": "desc"}], size=2)
    assert ids(alike) == [119, 118] and alike["hits"]["hits"][0]["sort"] == [1.0, 119]


def test_parameters_of_the_address(elastic, client, table):
    hits = elastic.search(index="logs", sort="level:desc,id:asc", size=3)["hits"]["hits"]
    rows = table.scan(columns=["id"], where="level = 'warn'")["id"].to_pylist()
    assert [hit["_source"]["id"] for hit in hits] == sorted(rows)[:3]
    asked = {"q": "lazy", "df": "body", "sort": "id", "_source_includes": "id,lev*",
             "_source_excludes": "level", "size": 1, "ignore_unavailable": "true"}  # fmt: skip
    found = client.get("/logs/_search", asked).json()
    assert found["hits"]["total"]["value"] == table.count(where="body indexquery 'lazy'")
    assert found["hits"]["hits"][0]["_source"] == {"id": 0}
    assert client.get("/logs/_count", {"q": "lazy", "df": "title"}).json()["count"] == 0
    bare = client.get("/logs/_search", {"_source": "false"}).json()["hits"]["hits"]
    assert "_source" not in bare[0]
    for name, value in (("terminate_after", "1"), ("explain", "true"), ("routing", "a"),
                        ("size", "x"), ("size", "²"), ("default_operator", "AND"), ("source", "{}"),
                        ("sort", "id:up"), ("rest_total_hits_as_int", "true")):  # fmt: skip
        answer = client.get("/logs/_search", {"q": "fox", name: value})
        assert answer.status_code == 400 and answer.json()["error"]["reason"], (name, answer.text)


def test_match_takes_whole_values_where_they_are_not_words(tmp_path):
    rows = {"state": ["in progress", "in", "done"], "body": ["the ways of foxes", "dogs", "a fox"],
            "boost": [1, 2, 3]}  # fmt: skip
    places = {"t": str(tmp_path / "t")}
    english = {"spark.indextables.indexing.tokenizer.body": "english"}
    Table.create(places["t"], data=pa.table(rows), mapping={"state": "string"}, properties=english)
    with running(places) as client:
        for query, wanted in (
            ({"match": {"state": "in progress"}}, ["in progress"]),
            ({"match": {"state": {"query": "in progress", "operator": "and"}}}, ["in progress"]),
            ({"multi_match": {"query": "in progress", "fields": ["state"]}}, ["in progress"]),
            (
                {"match": {"body": {"query": "the foxes", "operator": "and"}}},
                ["done", "in progress"],
            ),
            ({"match": {"body": "the"}}, []),
            ({"term": {"boost": 3}}, ["done"]),
            ({"term": {"boost": {"value": 1}}}, ["in progress"]),
            ({"range": {"boost": {"gte": 2}}}, ["done", "in"]),
        ):
            found = client.post("/t/_search", {"query": query}).json()
            hits = [hit["_source"]["state"] for hit in found["hits"]["hits"]]
            assert sorted(hits) == wanted, (query, found)
        (hit,) = client.post("/t/_search", {"query": {"term": {"boost": 3}}}).json()["hits"]["hits"]
        assert hit["_score"] == pytest.approx(1.0)


def test_highlights_mark_words(elastic):
    found = elastic.search(index="logs", query=FOX, size=1, highlight={"fields": {"body": {}}})
    (text,) = found["hits"]["hits"][0]["highlight"]["body"]
    assert "<em>fox</em>" in text and "<script>" in text
    how = {"fields": {"*": {}}, "pre_tags": ["["], "post_tags": ["]"], "encoder": "html"}
    found = elastic.search(index="logs", query=FOX, size=1, highlight=how)
    (text,) = found["hits"]["hits"][0]["highlight"]["body"]
    assert "[fox]" in text and "&lt;script&gt;" in text
    short = {"fields": [{"body": {"fragment_size": 20, "pre_tags": ["<"]}}]}
    found = elastic.search(index="logs", query=FOX, size=1, highlight=short)
    (text,) = found["hits"]["hits"][0]["highlight"]["body"]
    assert "<fox</em>" in text and len(text) < 40
    whole = {"fields": {"body": {"number_of_fragments": 0}}, "type": "unified"}
    found = elastic.search(index="logs", query=FOX, size=1, highlight=whole)
    (hit,) = found["hits"]["hits"]
    (text,) = hit["highlight"]["body"]
    assert text.replace("<em>", "").replace("</em>", "") == hit["_source"]["body"]


def test_values_are_counted(elastic, table):
    aggs = {"levels": {"terms": {"field": "level.keyword", "size": 2}},
            "days": {"terms": {"field": "day", "size": 1}}}  # fmt: skip
    found = elastic.search(index="logs", query=FOX, size=0, aggs=aggs)["aggregations"]
    wanted = table.facets("body:fox", by=["level", "day"], top=None)
    counts = wanted["level"].to_pylist()
    assert found["levels"]["buckets"] == [
        {"key": r["level"], "doc_count": r["count"]} for r in counts[:2]
    ]
    assert found["levels"]["sum_other_doc_count"] == sum(r["count"] for r in counts[2:])
    day = wanted["day"].to_pylist()[0]["day"]
    bucket = found["days"]["buckets"][0]
    assert bucket["key_as_string"] == day.isoformat()
    midnight = datetime.datetime.combine(day, datetime.time(), datetime.UTC)
    assert bucket["key"] == midnight.timestamp() * 1000


INTERVALS = [({"calendar_interval": "day"}, "1d"), ({"fixed_interval": "12h"}, "12h"),
             ({"calendar_interval": "1M"}, "1 month")]  # fmt: skip


@pytest.mark.parametrize(("interval", "ours"), INTERVALS)
def test_times_are_counted(elastic, table, interval, ours):
    aggs = {"over": {"date_histogram": {"field": "ts", **interval}}}
    found = elastic.search(index="logs", query=FOX, size=0, aggs=aggs)["aggregations"]["over"]
    wanted = table.histogram("body:fox", column="ts", interval=ours)
    starts = [s.timestamp() * 1000 for s in wanted["ts"].to_pylist()]
    assert [b["key"] for b in found["buckets"]] == starts
    assert [b["doc_count"] for b in found["buckets"]] == wanted["count"].to_pylist()


def test_figures_of_a_column(elastic, table):
    kinds = ("stats", "min", "max", "avg", "sum", "value_count", "cardinality")
    aggs = {kind: {kind: {"field": "id"}} for kind in kinds}
    found = elastic.search(index="logs", query=FOX, size=0, aggs=aggs)["aggregations"]
    numbers = table.scan(columns=["id"], where="body indexquery 'fox'")["id"].to_pylist()
    assert found["stats"] == {
        "count": len(numbers), "min": min(numbers), "max": max(numbers), "sum": sum(numbers),
        "avg": pytest.approx(sum(numbers) / len(numbers)),
    }  # fmt: skip
    assert [found[k]["value"] for k in ("min", "max", "sum", "value_count", "cardinality")] == [
        min(numbers), max(numbers), sum(numbers), len(numbers), len(numbers),
    ]  # fmt: skip
    none = elastic.search(index="logs", query={"match_none": {}}, size=0, aggs=aggs)["aggregations"]
    assert none["stats"] == {"count": 0, "min": None, "max": None, "avg": None, "sum": 0.0}


def test_aggregations_inside_buckets(elastic, table):
    inner = {"most": {"max": {"field": "id"}}, "over": {"date_histogram": {
        "field": "ts", "fixed_interval": "1d"}}}  # fmt: skip
    aggs = {"levels": {"terms": {"field": "level"}, "aggs": inner}}
    found = elastic.search(index="logs", query=FOX, size=0, aggs=aggs)["aggregations"]["levels"]
    for bucket in found["buckets"]:
        where = f"body indexquery 'fox' AND level = '{bucket['key']}'"
        assert bucket["most"]["value"] == max(table.scan(where=where)["id"].to_pylist())
        assert sum(b["doc_count"] for b in bucket["over"]["buckets"]) == bucket["doc_count"]


def test_several_searches_at_once(elastic):
    searches = [{"index": "logs"}, {"query": FOX, "size": 1}, {"index": "nope"}, {},
                {"index": "logs"}, {"query": {"geo_shape": {"body": "x"}}}]  # fmt: skip
    one, two, three = elastic.msearch(searches=searches)["responses"]
    assert one["status"] == 200 and one["hits"]["total"]["value"] == 79
    assert (two["status"], two["error"]["type"]) == (404, "index_not_found_exception")
    assert (three["status"], three["error"]["type"]) == (400, "parsing_exception")


def test_columns_and_the_server_are_described(elastic, client):
    properties = elastic.indices.get_mapping(index="logs")["logs"]["mappings"]["properties"]
    assert {name: one["type"] for name, one in properties.items()} == {
        "id": "long", "day": "date", "ts": "date", "level": "keyword", "title": "text",
        "body": "text",
    }  # fmt: skip
    assert elastic.info()["tagline"] == "You Know, for Search" and elastic.ping()
    assert elastic.cluster.health()["status"] == "green"
    # The page is what a browser gets there.
    assert "<!doctype html>" in client.get("/", headers={"accept": "text/html"}).text


@pytest.mark.parametrize("body", [
    {"query": {"fuzzy": {"body": {"value": "fox", "fuzziness": 7}}}}, {"query": {"geo_shape": {}}},
    {"query": {"regexp": {"body": "fo\\"}}}, {"query": {"prefix": {"body": 5}}},
    {"query": {"multi_match": {"query": "fox"}}}, {"query": {"range": {"ts": {"gte": "now-1x"}}}},
    {"query": {"match": {"body": {"query": "x", "fuzziness": 7}}}},
    {"query": {"match": {"body": {"query": "x", "operator": "maybe"}}}},
    {"query": {"match": {"level": {"query": "x", "fuzziness": 1}}}},
    {"query": {"match": {"body": {"query": "x", "minimum_should_match": "75%"}}}},
    {"query": {"query_string": {"query": "disk AND fox", "fields": ["body", "title"]}}},
    {"query": {"query_string": {"query": "disk -fox", "fields": ["body", "title"]}}},
    {"query": {"query_string": {"query": "disk", "fields": ["body^x"]}}},
    {"query": {"range": {"ts": {"gte": 1704067200, "format": "epoch_second"}}}},
    {"query": {"range": {"ts": {"gte": "01/02/2024", "format": "dd/MM/yyyy"}}}},
    {"query": {"wildcard": {"level": {"value": "W*", "case_insensitive": True}}}},
    {"query": {"bool": {"should": [FOX, WARN, FOX], "minimum_should_match": 2}}},
    {"aggs": {"a": {"date_histogram": {"field": "ts", "fixed_interval": "1d", "extended_bounds": {
        "max": "2024-01-01", "min": "2024-02-01"}}}}},
    {"query": {"range": {"id": {"gte": 5, "gt": 7}}}},
    {"query": {"match_phrase_prefix": {"body": {"query": "red fo", "slop": 1}}}},
    {"query": {"ids": {"values": ["1"]}}}, {"query": {"simple_query_string": {"query": "fox"}}},
    {"aggs": {"a": {"terms": {"field": "level", "order": [{"_count": "asc"}, {"_key": "desc"}]}}}},
    {"aggs": {"a": {"terms": {"field": "level", "include": "w.*"}}}},
    {"aggs": {"a": {"filters": {"filters": {"w": WARN}}}}},
    {"aggs": {"a": {"date_histogram": {"field": "ts", "fixed_interval": "1d", "offset": "+6h"}}}},
    {"highlight": {"fields": {"body": {"no_match_size": 5}}}, "query": FOX},
    {"highlight": {"fields": {"body": {"highlight_query": FOX}}}, "query": FOX},
    {"highlight": {"fields": {"body": 5}}, "query": FOX},
    {"sort": [{"id": {"order": "asc", "mode": "min"}}]}, {"min_score": 1}, {"collapse": {}},
    {"query": {"match": {"nope": "x"}}}, {"query": {"query_string": {"query": "body:(fox"}}},
    {"query": {"bool": {"nope": []}}}, {"fields": ["nope"]}, {"script_fields": {"a": {}}},
    {"sort": ["_doc"], "search_after": ["x"]}, {"pit": {"id": "x"}}, {"suggest": {}},
    {"query": {"match_phrase": {"body": "fox"}, "match": {"body": "x"}}}, {"knn": {}},
    {"aggs": {"a": {"top_hits": {}}}}, {"aggs": {"a": {"terms": {"field": "ts", "missing": "x"}}}},
    {"aggs": {"a": {"date_histogram": {"field": "ts", "fixed_interval": "1x"}}}},
    {"aggs": {"a": {"date_histogram": {"field": "ts", "fixed_interval": "1ms"}}}},
    {"aggs": {"a": {"date_histogram": {"field": "ts", "fixed_interval": "1d", "extended_bounds": {
        "min": "x"}}}}},
    {"aggs": {"a": {"date_histogram": {"field": "ts", "fixed_interval": "1d", "extended_bounds": {
        "min": True}}}}},
    {"aggs": {"a": {"percentiles": {"field": "id", "percents": [101]}}}},
    {"aggs": {"a": {"avg": {"field": "level"}}}},
    {"sort": ["nope"]}, {"size": 10_001}, {"size": -1}, {"search_after": [1]},
    {"sort": ["id"], "search_after": [1, 2]}, {"highlight": {"fields": {"id": {}}}},
    {"query": {"match_phrase": {"body": {"query": "red fox", "slop": "far"}}}},
    {"query": {"query_string": {"query": "fox", "fields": -1}}},
    {"query": {"query_string": {"query": "fox", "fields": [1]}}},
    {"query": {"term": {"day": 2**63}}}, {"query": {"range": {"ts": {"gte": -(2**62)}}}},
    {"query": {"term": {"ts": "²"}}}, {"_source": [None]}, {"_source": 5},
    {"query": {"match": {"body": "fox"}}, "highlight": {"fields": {"body": {}}, "pre_tags": 5}},
])  # fmt: skip
def test_what_is_not_supported_is_an_error_of_theirs(elastic, client, body):
    with pytest.raises(BadRequestError) as error:
        elastic.search(index="logs", body=body)
    assert error.value.body["status"] == 400
    assert error.value.body["error"]["root_cause"][0]["reason"]


def test_other_tables_are_not_found(elastic):
    with pytest.raises(NotFoundError, match="index_not_found_exception"):
        elastic.search(index="nope")
    assert not elastic.indices.exists(index="nope") and elastic.indices.exists(index="logs")


def test_one_score_for_all_rows_of_a_filter(elastic, table):
    found = elastic.search(index="logs", query={"constant_score": {"filter": FOX}}, size=200)
    assert set(ids(found)) == set(table.search("body:fox", limit=None)["id"].to_pylist())
    assert {hit["_score"] for hit in found["hits"]["hits"]} == {1.0}
    for query, score in (({"match_all": {"boost": 2}}, 2.0), ({"bool": {"filter": []}}, 1.0)):
        found = elastic.search(index="logs", query=query, size=200)
        assert {hit["_score"] for hit in found["hits"]["hits"]} == {score}


def test_rows_by_their_place(elastic, table):
    """What replaces scrolling: every row once, in an order that stays."""
    seen, after = [], None
    while True:
        more = {} if after is None else {"search_after": after}
        hits = elastic.search(index="logs", sort="_doc", size=50, **more)["hits"]["hits"]
        if not hits:
            break
        seen += [hit["_source"]["id"] for hit in hits]
        after = hits[-1]["sort"]
    assert sorted(seen) == sorted(table.scan(columns=["id"])["id"].to_pylist())


def test_fields_beside_the_source(elastic):
    fields = ["id", "lev*", {"field": "ts", "format": "epoch_millis"}]
    found = elastic.search(index="logs", query={"term": {"id": 3}}, source=False, fields=fields)
    (hit,) = found["hits"]["hits"]
    assert hit["fields"] == {"id": [3], "level": ["warn"], "ts": ["1704078000000"]}


def test_what_other_calls_of_the_client_get(elastic):
    """An answer, or an error of Elasticsearch's form: never that this is another product."""
    assert elastic.indices.get(index="logs")["logs"]["mappings"]["properties"]["id"] == {
        "type": "long"}  # fmt: skip
    assert set(elastic.indices.get_mapping()) == {"logs", HOSTILE}
    assert [one["index"] for one in elastic.cat.indices(format="json")] == ["logs", HOSTILE]
    assert elastic.field_caps(index="logs", fields="body")["fields"]["body"]["text"]["searchable"]
    refused = [
        lambda: elastic.index(index="logs", document={"id": 1}),
        lambda: elastic.indices.delete(index="logs"),
        lambda: elastic.indices.create(index="new"),
        lambda: elastic.delete_by_query(index="logs", query={"match_all": {}}),
        lambda: elastic.open_point_in_time(index="logs", keep_alive="1m"),
        lambda: list(helpers.scan(elastic, index="logs")),
        lambda: elastic.get(index="logs", id="1"),
        lambda: elastic.bulk(operations=[{"delete": {"_index": "logs", "_id": "1"}}]),
        lambda: elastic.sql.query(query="SELECT 1"),
    ]
    for call in refused:
        with pytest.raises(BadRequestError) as error:
            call()
        assert error.value.body["error"]["root_cause"][0]["reason"]


def test_a_value_is_never_syntax(table):
    for value in ('x" OR *', "x\\", "a) OR (b", "-*", "id:1", "*"):
        text = translated({"term": {"level": value}}, table.schema).text
        assert table.count(where=f"indexqueryall('{text}')".replace("\\", "\\\\")) == 0, text
    with pytest.raises(UnsupportedError, match="No mapping found"):
        translated({"exists": {"field": "nope"}}, table.schema)


def test_a_deep_query_is_refused(client):
    query = '{"bool": {"must": [' * 300 + '{"match_all": {}}' + "]}}" * 300
    answer = client.request("POST", "/logs/_search", body=f'{{"query": {query}}}'.encode())
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["root_cause"][0]["reason"]
