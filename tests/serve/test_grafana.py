"""The requests that Grafana's Elasticsearch data source sends, answered as its parsers read them.

The bodies are those that its query builder makes for a panel, a table of logs, the volume of logs,
the context of a line, a variable and annotations, with the names and times of our table.
"""

from __future__ import annotations

import datetime
import itertools
import json
from collections import Counter

import pyarrow as pa
import pytest
from serving import running

import indextables as it

START = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
MILLIS = int(START.timestamp() * 1000)
HOUR = 3_600_000
FROM, TO = MILLIS + 2 * HOUR, MILLIS + 50 * HOUR
ALL = {"range": {"ts": {"format": "epoch_millis", "gte": FROM, "lte": TO}}}
HEADER = {"ignore_unavailable": True, "index": "logs", "search_type": "query_then_fetch"}


def over(**options):
    bounds = {"min": FROM, "max": TO}
    return {"field": "ts", "min_doc_count": 0, "extended_bounds": bounds, "format": "epoch_millis",
            "fixed_interval": "1h", **options}  # fmt: skip


@pytest.fixture(scope="module")
def ask(client):
    """Send one search as Grafana does; its answer."""

    def send(body, index="logs"):
        head = {**HEADER, "index": index}
        text = json.dumps(head) + "\n" + json.dumps(body) + "\n"
        answer = client.request(
            "POST", "/_msearch?max_concurrent_shard_requests=5", body=text.encode(),
            headers={"content-type": "application/x-ndjson"},
        )  # fmt: skip
        assert answer.status_code == 200, answer.text
        (found,) = answer.json()["responses"]
        return found

    return send


@pytest.fixture(scope="module")
def rows(table):
    """What is between the times of the dashboard."""
    kept = [r for r in table.scan().to_pylist() if FROM <= r["ts"].timestamp() * 1000 <= TO]
    assert len(kept) == 49
    return sorted(kept, key=lambda row: row["id"])


def hour_of(row):
    return int(row["ts"].timestamp() * 1000) // HOUR * HOUR


def test_the_data_source_is_tested(client):
    health = client.get("/_cluster/health", {"wait_for_status": "yellow"})
    assert health.json()["status"] == "green"
    # Go's client names no kind of answer, and reads JSON.
    assert client.get("/").json()["version"]["build_flavor"] != "serverless"
    properties = client.get("/logs/_mapping").json()["logs"]["mappings"]["properties"]
    assert properties["ts"] == {"type": "date"}
    caps = client.get("/logs/_field_caps", {"fields": "ts,l*"}).json()
    assert {name: list(kinds) for name, kinds in caps["fields"].items()} == {
        "ts": ["date"], "level": ["keyword"]}  # fmt: skip


def test_a_panel_of_counts(ask, rows):
    body = {
        "size": 0,
        "query": {"bool": {"filter": ALL}},
        "aggs": {"2": {"date_histogram": over()}},
    }
    buckets = ask(body)["aggregations"]["2"]["buckets"]
    assert [b["key"] for b in buckets] == list(range(FROM, TO + 1, HOUR))
    assert all(b["key_as_string"] == str(b["key"]) for b in buckets)
    counts = Counter(map(hour_of, rows))
    assert {b["key"]: b["doc_count"] for b in buckets} == counts


def test_empty_hours_are_drawn(ask):
    query = {"bool": {"filter": [ALL, {"query_string": {
        "analyze_wildcard": True, "query": "word10 OR word20"}}]}}  # fmt: skip
    body = {"size": 0, "query": query, "aggs": {"2": {"date_histogram": over()}}}
    buckets = ask(body)["aggregations"]["2"]["buckets"]
    assert [b["key"] for b in buckets] == list(range(FROM, TO + 1, HOUR))
    assert sum(b["doc_count"] for b in buckets) == 2
    nothing = {**body, "query": {"match_none": {}}}
    assert {b["doc_count"] for b in ask(nothing)["aggregations"]["2"]["buckets"]} == {0}
    sparse = {**body, "aggs": {"2": {"date_histogram": over(min_doc_count=1)}}}
    assert len(ask(sparse)["aggregations"]["2"]["buckets"]) == 2


@pytest.mark.parametrize("interval", ["7200000ms", "1800000ms", "43200s", "1d"])
def test_intervals_as_grafana_spells_them(ask, rows, interval):
    body = {"size": 0, "query": {"bool": {"filter": ALL}},
            "aggs": {"2": {"date_histogram": over(fixed_interval=interval)}}}  # fmt: skip
    buckets = ask(body)["aggregations"]["2"]["buckets"]
    units = {"ms": 1, "s": 1_000, "d": 86_400_000}
    number = interval.rstrip("msd")
    width = int(number) * units[interval.removeprefix(number)]
    assert sum(b["doc_count"] for b in buckets) == len(rows)
    assert buckets[0]["key"] == FROM // width * width and buckets[-1]["key"] == TO // width * width
    assert {b["key"] - a["key"] for a, b in itertools.pairwise(buckets)} == {width}


def test_a_panel_by_level_with_figures(ask, rows):
    """Its test data calls this one complex."""
    inner = {"1": {"max": {"field": "id"}}, "3": {"min": {"field": "id"}},
             "5": {"avg": {"field": "id"}}}  # fmt: skip
    aggs = {"4": {
        "terms": {"field": "level", "order": {"_key": "desc"}, "size": 10},
        "aggs": {"2": {"date_histogram": over(fixed_interval="1m"), "aggs": inner}},
    }}  # fmt: skip
    found = ask({"size": 0, "query": {"bool": {"filter": ALL}}, "aggs": aggs})["aggregations"]["4"]
    assert [b["key"] for b in found["buckets"]] == ["warn", "info", "error"]
    for bucket in found["buckets"]:
        here = [r["id"] for r in rows if r["level"] == bucket["key"]]
        assert bucket["doc_count"] == len(here)
        minutes = bucket["2"]["buckets"]
        assert len(minutes) == 48 * 60 + 1
        full = [b for b in minutes if b["doc_count"]]
        assert [b["1"]["value"] for b in full] == [b["3"]["value"] for b in full] == here
        empty = next(b for b in minutes if not b["doc_count"])
        assert empty["1"] == empty["5"] == {"value": None}


def test_the_values_with_the_highest_figures(ask, rows):
    aggs = {"3": {"terms": {"field": "level", "order": {"1": "desc"}, "size": 2},
                  "aggs": {"1": {"avg": {"field": "id"}}}}}  # fmt: skip
    found = ask({"size": 0, "query": {"bool": {"filter": ALL}}, "aggs": aggs})["aggregations"]["3"]
    means = {}
    for level in ("info", "warn", "error"):
        ids = [r["id"] for r in rows if r["level"] == level]
        means[level] = sum(ids) / len(ids)
    best = sorted(means, key=lambda level: -means[level])[:2]
    assert [(b["key"], b["1"]["value"]) for b in found["buckets"]] == [(k, means[k]) for k in best]
    lost = sum(r["level"] not in best for r in rows)
    assert found["sum_other_doc_count"] == lost > 0


def test_other_figures(ask, rows):
    aggs = {"2": {"date_histogram": over(fixed_interval="1d"), "aggs": {
        "1": {"percentiles": {"field": "id", "percents": ["25", "50"]}},
        "3": {"extended_stats": {"field": "id", "sigma": "2"}},
        "4": {"cardinality": {"field": "level", "precision_threshold": "100"}}}}}  # fmt: skip
    buckets = ask({"size": 0, "query": {"bool": {"filter": ALL}}, "aggs": aggs})["aggregations"]
    first = buckets["2"]["buckets"][0]
    ids = pa.array([r["id"] for r in rows if hour_of(r) < MILLIS + 24 * HOUR])
    assert first["doc_count"] == len(ids) == 22
    assert first["1"]["values"] == {"25.0": 7.25, "50.0": 12.5}
    assert first["3"]["std_deviation"] == pytest.approx(pa.compute.stddev(ids).as_py())
    assert first["3"]["std_deviation_bounds"]["upper"] == pytest.approx(
        12.5 + 2 * first["3"]["std_deviation"])  # fmt: skip
    assert first["4"] == {"value": 3}


LOGS = {
    "docvalue_fields": ["ts"], "script_fields": {}, "size": 5,
    "fields": [{"field": "ts", "format": "strict_date_optional_time_nanos"}],
    "query": {"bool": {"filter": [ALL, {"query_string": {
        "analyze_wildcard": True, "query": "fox"}}]}},
    # Go writes the names of an object in their order: the place before the time.
    "sort": {"_doc": {"order": "desc"}, "ts": {"order": "desc", "unmapped_type": "boolean"}},
    "highlight": {"fields": {"*": {}}, "fragment_size": 2147483647,
                  "pre_tags": ["@HIGHLIGHT@"], "post_tags": ["@/HIGHLIGHT@"]},
}  # fmt: skip


def test_logs_newest_first(ask, rows):
    hits = ask(LOGS)["hits"]["hits"]
    wanted = sorted((r for r in rows if "fox" in r["body"]), key=lambda r: -r["id"])[:5]
    assert [hit["_source"]["id"] for hit in hits] == [r["id"] for r in wanted]
    for hit, row in zip(hits, wanted, strict=True):
        assert hit["fields"]["ts"] == [row["ts"].isoformat(timespec="milliseconds")
                                       .replace("+00:00", "Z")]  # fmt: skip
        assert "@HIGHLIGHT@fox@/HIGHLIGHT@" in hit["highlight"]["body"][0]
        assert len(hit["sort"]) == 2


def test_the_lines_around_a_line(ask, rows):
    """The context of a line: pages that go on after what `sort` said."""
    seen, after = [], None
    while True:
        body = {**LOGS, "size": 7, **({} if after is None else {"search_after": after})}
        hits = ask(body)["hits"]["hits"]
        if not hits:
            break
        seen += [hit["_source"]["id"] for hit in hits]
        after = hits[-1]["sort"]
    assert seen == sorted((r["id"] for r in rows if "fox" in r["body"]), reverse=True)
    # Without such a value its pages send the time in milliseconds.
    until = {"range": {"ts": {"lte": TO, "format": "epoch_millis"}}}
    older = {"size": 3, "query": {"bool": {"filter": [until]}}, "sort": [{"ts": "desc"}],
             "search_after": [TO]}  # fmt: skip
    assert [hit["_source"]["id"] for hit in ask(older)["hits"]["hits"]] == [49, 48, 47]


def test_the_volume_of_logs(ask, rows):
    aggs = {"2": {
        "terms": {"field": "level", "size": 500, "order": {"_count": "desc"}, "min_doc_count": 0,
                  "missing": "unknown"},
        "aggs": {"3": {"date_histogram": over()}},
    }}  # fmt: skip
    found = ask({"size": 0, "query": {"bool": {"filter": ALL}}, "aggs": aggs})["aggregations"]["2"]
    counts = Counter(r["level"] for r in rows)
    assert {b["key"]: b["doc_count"] for b in found["buckets"]} == counts
    for bucket in found["buckets"]:
        hours = Counter(hour_of(r) for r in rows if r["level"] == bucket["key"])
        assert {b["key"]: b["doc_count"] for b in bucket["3"]["buckets"] if b["doc_count"]} == hours


def test_a_variable_of_values(ask, rows):
    terms = {"field": "level", "size": 500, "order": {"_key": "asc"}}
    body = {"size": 0, "query": {"bool": {"filter": [ALL]}}, "aggs": {"1": {"terms": terms}}}
    buckets = ask(body)["aggregations"]["1"]["buckets"]
    assert [b["key"] for b in buckets] == sorted({r["level"] for r in rows})


def test_annotations(ask, rows):
    ranges = [{"range": {"ts": {"from": FROM, "to": TO, "format": "epoch_millis"}}}]
    query = {"bool": {"filter": [{"bool": {"should": ranges, "minimum_should_match": 1}},
                                 {"query_string": {"query": "level:error"}}]}}  # fmt: skip
    hits = ask({"query": query, "size": 10000})["hits"]["hits"]
    assert len(hits) == sum(r["level"] == "error" for r in rows)


def test_an_index_may_be_a_pattern(ask, client):
    assert ask({"size": 0}, index="log*")["hits"]["total"]["value"] == 119
    many = ask({"size": 0}, index="*")
    assert many["status"] == 400 and "one table" in many["error"]["reason"]
    assert ask({"size": 0}, index="nope*")["status"] == 404


def test_what_its_menus_offer_and_is_not_here_says_so(ask):
    for kind, options in (("derivative", {"buckets_path": "1"}), ("top_metrics", {"metrics": []}),
                          ("geohash_grid", {"field": "id"}),
                          ("avg", {"field": "id", "script": "1"}),
                          ("terms", {"field": "level", "order": {"7": "desc"}})):  # fmt: skip
        found = ask({"size": 0, "aggs": {"1": {kind: options}}})
        assert found["status"] == 400 and kind in found["error"]["reason"] + "terms", kind


def test_times_of_other_kinds(tmp_path):
    """Dates, times without a zone and nulls count as times too, and values may be missing."""
    start = datetime.datetime(2024, 1, 1)
    it.write_table(tmp_path / "t", pa.table({
        "at": pa.array([start, None, start + datetime.timedelta(milliseconds=250)],
                       pa.timestamp("us")),
        "day": pa.array([start.date(), None, start.date() + datetime.timedelta(days=3)]),
        "n": [1.5, float("nan"), None], "flag": [True, None, False],
        "who": ["a", None, "b"],
    }), mapping={"who": "string"})  # fmt: skip
    with running({"t": str(tmp_path / "t")}) as client:

        def aggregated(**wanted):
            answer = client.post("/t/_search", {"size": 0, "aggs": {"a": wanted}})
            assert answer.status_code == 200, answer.text
            return answer.json()["aggregations"]["a"]

        fine = {"field": "at", "fixed_interval": "100ms"}
        assert [b["doc_count"] for b in aggregated(date_histogram=fine)["buckets"]] == [1, 0, 1]
        days = {"field": "day", "calendar_interval": "day",
                "extended_bounds": {"max": MILLIS + 4 * 24 * HOUR}}  # fmt: skip
        counts = [b["doc_count"] for b in aggregated(date_histogram=days)["buckets"]]
        assert counts == [1, 0, 0, 1, 0]
        named = aggregated(terms={"field": "who", "missing": "nobody", "order": {"_key": "asc"}})
        assert [(b["key"], b["doc_count"]) for b in named["buckets"]] == [
            ("a", 1), ("b", 1), ("nobody", 1)]  # fmt: skip
        assert [b["key"] for b in aggregated(terms={"field": "n"})["buckets"]] == [1.5, None]
        assert aggregated(stats={"field": "n"})["count"] == 1
        assert aggregated(max={"field": "flag"}) == {"value": 1}
        hits = client.post("/t/_search", {"sort": [{"at": "desc"}], "fields": ["at", "day"]}).json()
        fields = [hit.get("fields") for hit in hits["hits"]["hits"]]
        assert fields[0]["at"] == ["2024-01-01T00:00:00.250000Z"] and fields[-1] == {}
