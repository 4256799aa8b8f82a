"""The JSON interface says what `Table` says."""

from __future__ import annotations

import io
import json
import urllib.parse

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import indextables as it
from indextables.predicate.sql_text import parse_predicate
from indextables.serve.answers import Filter, filter_sql

HOSTILE = "<img src=x onerror=alert(1)>"


def search(client, body, *, name="logs", status=200):
    answer = client.post(f"/api/tables/{name}/search", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_tables_are_listed_with_their_figures(client, table):
    logs, hostile = client.get("/api/tables").json()["tables"]
    assert (logs["name"], logs["rows"], logs["version"]) == ("logs", 119, 2)
    snapshot = table.snapshot()
    assert (logs["splits"], logs["bytes"]) == (snapshot.num_files, snapshot.total_bytes)
    assert hostile["name"] == hostile["title"] == HOSTILE


def test_a_table_says_which_columns_are_worth_counting(client):
    found = client.get("/api/tables/logs").json()
    assert (found["time"], found["facets"]) == ("ts", ["day", "level"])
    kinds = {c["name"]: (c["type"], c["searched_as"], c["text"]) for c in found["columns"]}
    assert kinds["body"] == ("string", "text", True)
    assert kinds["level"] == ("string", "string", False)


def test_a_search_returns_the_rows_of_a_search(client, table):
    found = search(client, {"query": "disk fox", "limit": 5, "offset": 3})
    hits = table.search("disk fox", limit=8).slice(3)
    assert [r["values"]["id"] for r in found["rows"]] == hits["id"].to_pylist()
    assert [r["score"] for r in found["rows"]] == pytest.approx(hits["_score"].to_pylist())
    assert found["total"] == table.search("disk fox", limit=None).num_rows
    assert found["milliseconds"] > 0
    behind = table.scan(columns=["id", "_split", "_row"]).to_pylist()
    places = {r["id"]: (r["_split"], r["_row"]) for r in behind}
    assert all((r["split"], r["row"]) == places[r["values"]["id"]] for r in found["rows"])


def test_snippets_are_parts_of_plain_text(client):
    found = search(client, {"query": "body:fox", "limit": 1, "columns": ["body"]})
    parts = found["rows"][0]["snippets"]["body"]
    assert [p["text"] for p in parts if p["found"]] == ["fox"]
    assert "<script>" in "".join(p["text"] for p in parts)


@pytest.mark.parametrize(("typed", "instead"), [
    ("lasy", "lazy"), ("body:lasy AND dgo", "body:lazy AND dog"),
    ("+lasy +(fox lazi)", "+lazy +(fox lazy)"),
    ("zzzzzz", None), ("lasy*", None), ("title:lasy", None), ('"lasy dog"', None),
])  # fmt: skip
def test_a_word_that_no_row_has_is_corrected(client, table, typed, instead):
    found = client.get("/api/tables/logs/instead", {"query": typed}).json()["instead"]
    assert found == instead
    assert instead is None or search(client, {"query": instead})["total"]


def test_a_correction_meets_the_filters(client):
    def ask(**given):
        return client.get("/api/tables/logs/instead", given).json()["instead"]

    assert (
        ask(query="lasy", where="level = 'info'", filters='{"column": "id", "from": 5}') == "lazy"
    )
    assert ask(query="lasy", where="id < 0") is None and ask() is None and ask(query="") is None
    assert client.get("/api/tables/logs/instead", {"query": "("}).status_code == 400


def test_without_a_query_rows_are_scanned(client, table):
    found = search(client, {"where": "level = 'error'", "limit": 3, "columns": ["id"]})
    assert found["total"] == table.count(where="level = 'error'")
    assert len(found["rows"]) == 3 and "score" not in found["rows"][0]


def test_facets_and_histogram_are_those_of_the_table(client, table):
    body = {"query": "disk", "facets": ["level", "day"], "top": 2, "histogram": "ts",
            "interval": "1d", "limit": 0}  # fmt: skip
    found = search(client, body)
    facets = table.facets("disk", by=["level", "day"], top=2)
    assert found["facets"]["level"] == [
        {"value": r["level"], "count": r["count"]} for r in facets["level"].to_pylist()
    ]
    assert found["facets"]["day"][0]["value"] == facets["day"]["day"][0].as_py().isoformat()
    parts = table.histogram("disk", column="ts", interval="1d")
    assert [p["count"] for p in found["histogram"]["parts"]] == parts["count"].to_pylist()
    assert sum(p["count"] for p in found["histogram"]["parts"]) == found["total"]


def test_the_interval_fits_the_rows(client):
    every = search(client, {"histogram": "ts", "limit": 0})["histogram"]
    assert every["interval"] == "3h" and len(every["parts"]) == 40
    few = search(client, {"histogram": "ts", "limit": 0, "where": "id < 4"})["histogram"]
    assert few["interval"] == "5m"
    none = search(client, {"histogram": "ts", "limit": 0, "where": "id < 0"})["histogram"]
    assert none == {"column": "ts", "interval": None, "parts": []}
    assert search(client, {"histogram": "day", "limit": 0})["histogram"]["interval"] == "1d"


def test_filters_are_conditions(client, table):
    filters = [{"column": "level", "values": ["warn", "error"]},
               {"column": "ts", "from": "2024-01-02T00:00:00+00:00", "to": "2024-01-03T00:00:00Z"},
               {"column": "day", "values": ["2024-01-05"], "not": True}]  # fmt: skip
    found = search(client, {"query": "disk", "filters": filters, "limit": 100})
    wanted = table.search(
        "disk", limit=None,
        where="level IN ('warn', 'error') AND ts >= '2024-01-02T00:00:00Z' AND "
        "ts < '2024-01-03T00:00:00Z'",
    )  # fmt: skip
    assert {r["values"]["id"] for r in found["rows"]} == set(wanted["id"].to_pylist())
    assert found["total"] == wanted.num_rows > 0
    assert table.count(where=found["where"]) >= found["total"]


@pytest.mark.parametrize(
    "value", ["it's", "back\\slash", "' OR true --", "\\' OR true", "`", "ü\n", ""]
)
def test_a_filter_never_becomes_sql(value):
    schema = pa.schema([("a`b", pa.string())])
    rows = pa.table({"a`b": [value, "other"]})
    table = it.write_table(f"memory://filter-{abs(hash(value))}", rows)
    sql = filter_sql(Filter("a`b", (value,)), schema)
    assert table.scan(where=sql)["a`b"].to_pylist() == [value]
    assert parse_predicate(sql, schema) is not None
    hidden = filter_sql(Filter("a`b", (value,), negated=True), schema)
    assert table.scan(where=hidden)["a`b"].to_pylist() == ["other"]


def test_the_plan_says_how_it_narrowed(client):
    found = search(client, {"where": "day = DATE '2024-01-02' AND id > 30", "limit": 0})
    stages = {s["name"]: s for s in found["plan"]["stages"]}
    splits = [s["splits"] for s in found["plan"]["stages"]]
    assert splits[0] > splits[1] >= splits[2]
    assert stages["table"]["bytes"] > stages["partitions"]["bytes"] > 0
    assert found["plan"]["read"] == stages["statistics"]["splits"] > 0


def test_older_versions_are_searched(client):
    assert search(client, {"version": 0, "limit": 0})["total"] == 60
    assert search(client, {"version": 1, "limit": 0})["total"] == 120
    assert client.get("/api/tables/logs?version=0").json()["rows"] == 60
    assert search(client, {"version": 99}, status=404)["error"]["type"] == "VersionNotFoundError"


def test_a_new_version_is_seen(client, place, monkeypatch):
    before = search(client, {"limit": 0}, name=urllib.parse.quote(HOSTILE))
    monkeypatch.setattr("indextables.serve.tables._FRESH_S", 0)
    it.Table.open(place / "hostile").append(pa.table({HOSTILE: ["new fox"], "n": [3]}))
    after = search(client, {"limit": 0}, name=urllib.parse.quote(HOSTILE))
    assert (after["version"], after["total"]) == (before["version"] + 1, before["total"] + 1)


@pytest.mark.parametrize(
    ("body", "kind", "position"),
    [
        ({"query": "body:(fox"}, "QuerySyntaxError", 5),
        ({"query": "fox nope:x"}, "UnknownFieldError", 4),
        ({"query": "id:abc"}, "SearchValueError", 3),
        ({"where": "nope = 1"}, "UnknownColumnError", None),
        ({"where": "id ="}, "PredicateSyntaxError", None),
        ({"filters": [{"column": "nope", "values": [1]}]}, "RequestError", None),
        ({"filters": [{"column": "id", "values": ["x"]}]}, "RequestError", None),
        ({"limit": 1001}, "RequestError", None),
        ({"limit": -1}, "RequestError", None),
        ({"offset": 10_000, "limit": 1}, "RequestError", None),
        ({"query": "x" * 10_001}, "RequestError", None),
        ({"query": 3}, "RequestError", None),
        ({"limits": 3}, "RequestError", None),
        ({"histogram": "level"}, "RequestError", None),
        ({"facets": ["nope"]}, "UnknownColumnError", None),
    ],
)  # fmt: skip
def test_errors_say_what_and_where(client, body, kind, position):
    error = search(client, body, status=400)["error"]
    assert (error["type"], error.get("position")) == (kind, position)
    assert error["message"].endswith((".", "…"))


def test_an_address_is_the_same_search(client):
    body = {"query": "disk", "facets": ["level"], "columns": ["id", "level"], "limit": 3,
            "filters": [{"column": "level", "values": ["warn"]}]}  # fmt: skip
    address = {**body, "filters": json.dumps(body["filters"][0])}
    one = search(client, body)
    two = client.get("/api/tables/logs/search", params=address).json()
    for answer in (one, two):
        del answer["milliseconds"], answer["timings"]
    assert one == two


def test_sql_reads_the_served_tables_and_nothing_else(client, table, place):
    query = (
        "SELECT level, count(*) AS n FROM logs WHERE body indexquery 'fox' GROUP BY 1 ORDER BY 1"
    )
    found = client.post("/api/sql", json={"query": query}).json()
    wanted = it.sql(query, logs=table)
    assert found["columns"] == ["level", "n"]
    assert found["rows"] == [list(r.values()) for r in wanted.to_pylist()]
    past = client.post("/api/sql", json={"query": "SELECT count(*) FROM logs VERSION AS OF 0"})
    assert past.json()["rows"] == [[60]]
    cut = client.post("/api/sql", json={"query": "SELECT id FROM logs", "limit": 7}).json()
    assert len(cut["rows"]) == 7 and cut["truncated"]
    for refused in (
        f"SELECT * FROM '{place}/logs'", f"SELECT * FROM indextables.`{place}/logs`",
        "SELECT * FROM nope", "DELETE FROM logs WHERE id = 1", "MERGE SPLITS 'logs'",
        "SELECT * FROM read_csv('/etc/passwd')", "COPY logs TO '/tmp/x'",
    ):  # fmt: skip
        answer = client.post("/api/sql", json={"query": refused})
        assert answer.status_code in (400, 404), (refused, answer.text)


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_an_export_has_all_rows(client, table, kind):
    address = {"format": kind, "query": "disk", "where": "level = 'info'",
               "columns": ["id", "level"]}  # fmt: skip
    answer = client.get("/api/tables/logs/export", params=address)
    assert answer.status_code == 200, answer.text
    assert f'filename="logs.{kind}"' in answer.headers["content-disposition"]
    read = {
        "parquet": lambda b: pq.read_table(io.BytesIO(b)),
        "csv": lambda b: pyarrow.csv.read_csv(io.BytesIO(b)),
        "json": lambda b: pa.Table.from_pylist([json.loads(x) for x in b.splitlines()]),
    }[kind](answer.content)
    wanted = table.search("disk", where="level = 'info'", limit=None)
    assert sorted(read["id"].to_pylist()) == sorted(wanted["id"].to_pylist())
    assert read.column_names == ["id", "level"]
    assert client.get("/api/tables/logs/export?format=exe").status_code == 400


def test_a_large_answer_is_refused(client, monkeypatch):
    monkeypatch.setattr("indextables.serve.answers.MOST_BYTES", 500)
    error = search(client, {"limit": 100}, status=400)["error"]
    assert "500 are allowed" in error["message"]
    assert search(client, {"limit": 2, "columns": ["id"]})["total"] == 119
    answer = client.post("/api/sql", json={"query": "SELECT * FROM logs"})
    assert answer.status_code == 400 and "500 are allowed" in answer.text


def test_a_large_export_is_refused_whole(client, monkeypatch):
    monkeypatch.setattr("indextables.serve.api.MOST_EXPORTED", 10)
    answer = client.get("/api/tables/logs/export")
    assert answer.status_code == 400 and "119 rows match" in answer.json()["error"]["message"]


def test_the_same_elsewhere_is_the_same(client, table):
    body = {"query": "disk \"red fox\"",
            "filters": [{"column": "level", "values": ["it's", "info"]}],
            "columns": ["id", "level"], "limit": 4, "offset": 2}  # fmt: skip
    found = search(client, body)
    ids = [r["values"]["id"] for r in found["rows"]]
    assert it.sql(found["same"]["sql"], logs=table)["id"].to_pylist() == ids
    names: dict = {}
    exec(found["same"]["python"], names)
    assert names["rows"]["id"].to_pylist() == ids
    compile(found["same"]["pyspark"], "pyspark", "exec")
    plain = search(client, {"limit": 2, "version": 0})["same"]
    assert it.sql(plain["sql"], logs=table).num_rows == 2


def test_words_and_history_and_report_and_changes(client, table):
    assert client.get("/api/tables/logs/words?prefix=fo").json() == {"words": ["fox"]}
    assert client.get("/api/tables/logs/words?prefix=x:*").json() == {"words": []}
    versions = client.get("/api/tables/logs/history").json()["versions"]
    assert [v["version"] for v in versions] == [2, 1, 0]
    report = client.get("/api/tables/logs/report?version=1").json()
    assert (report["version"], report["rows"]) == (1, 120)
    assert "a-secret-value" not in client.get("/api/tables/logs/report").text
    page = client.get("/tables/logs/report")
    assert "a-secret-value" not in page.text and "<script" not in page.text
    assert "script-src" not in page.headers["content-security-policy"]
    found = client.get("/api/tables/logs/changes?since=1&query=disk").json()
    assert (found["total_since"] - found["total"], found["changes"]) == (1, 1)
    assert found["rows"][0]["_change_type"] == "delete" and found["rows"][0]["id"] == 1


def test_the_interface_is_described(client):
    described = client.get("/api/openapi.json").json()
    search_post = described["paths"]["/api/tables/{name}/search"]["post"]
    properties = search_post["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert {"query", "where", "filters", "facets", "histogram", "version"} <= set(properties)
    assert set(described["paths"]) >= {"/api/sql", "/api/tables", "/api/searches/{id}"}
    assert all(one["summary"] for path in described["paths"].values() for one in path.values())
    export = described["paths"]["/api/tables/{name}/export"]["get"]["parameters"]
    schemas = {one["name"]: one["schema"] for one in export}
    assert schemas["format"]["enum"] == ["parquet", "csv", "json"]
    assert schemas["version"]["minimum"] == 0
    refused = client.request("PUT", "/api/tables")
    assert refused.status_code == 405 and "GET" in refused.headers["allow"]


@pytest.mark.parametrize("query", [
    "disk fox", "body:fox^3 level:warn", "+disk -lazy report", "(lazy AND fox) OR title:disk",
    '"red fox" word1*', "disk~1", "id:[3 TO 9] disk", "*", "level: IN [warn info] fox", "body:*",
])  # fmt: skip
def test_the_parts_of_a_score_add_up(client, query):
    for hit in search(client, {"query": query, "limit": 3})["rows"]:
        given = {"query": query, "split": hit["split"], "row": hit["row"]}
        found = client.get("/api/tables/logs/why", params=given)
        assert found.status_code == 200, found.text
        assert found.json()["score"] == pytest.approx(hit["score"], rel=1e-4)
        assert found.json()["parts"]


def test_a_score_is_explained_by_words_and_columns(client):
    hit = search(client, {"query": "title:disk fox", "limit": 1})["rows"][0]
    given = {"query": "title:disk fox", "split": hit["split"], "row": hit["row"]}
    parts = client.get("/api/tables/logs/why", params=given).json()["parts"]
    assert {(p["column"], p["clause"]) for p in parts} == {("title", "disk"), ("body", "fox")}
    many = " ".join(f"word{n}" for n in range(200))
    for wrong in ({"split": "nope"}, {"row": 10**9}, {"query": ""}, {"query": many}):
        assert client.get("/api/tables/logs/why", params={**given, **wrong}).status_code == 400
