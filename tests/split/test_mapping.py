"""How columns are mapped, by default and by options."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from conftest import configuration

from indextables.errors import SchemaError
from indextables.split.analyzer import Analyzer
from indextables.split.mapping import TableMapping, compatible
from indextables.split.mapping_options import build_mapping

SCHEMA = pa.schema(
    [
        ("Id", pa.int64()),
        ("Title", pa.string()),
        ("body", pa.string()),
        ("ip", pa.string()),
        ("meta", pa.struct([("a", pa.string())])),
        ("tags", pa.list_(pa.string())),
        ("blob", pa.binary()),
        ("big", pa.decimal128(30, 2)),
        ("d", pa.date32()),
    ]
)


def mapped(**options: object) -> TableMapping:
    return build_mapping(SCHEMA, configuration(**options))


def test_kinds_by_default():
    kinds = {f.name: f.kind for f in mapped().fields}
    assert kinds == {
        "Id": "i64",
        "Title": "text",
        "body": "text",
        "ip": "text",
        "meta": "json",
        "tags": "text",
        "blob": "bytes",
        "big": "decimal",
        "d": "date",
    }
    assert [f.name for f in mapped().indexed] == ["Title", "body", "ip", "meta", "tags"]
    assert "blob" not in [f.name for f in mapped().searchable]


def test_both_spellings_of_the_type_map_in_any_case():
    chosen = mapped(**{"indexing.typemap.TITLE": "String", "indexing.typemap.json": "body, IP"})
    kinds = {f.name: f.kind for f in chosen.fields}
    assert (kinds["Title"], kinds["body"], kinds["ip"]) == ("string", "json", "json")
    assert chosen.by_name["Title"].tokenizer == "raw"


def test_every_problem_is_in_one_message():
    with pytest.raises(SchemaError) as caught:
        mapped(
            **{
                "indexing.typemap.nope": "string",
                "indexing.typemap.Id": "ip",
                "indexing.typemap.body": "jpeg",
                "indexing.tokenizer.body": "klingon_stem",
                "indexing.tokenizer.Id": "default",
                "indexing.indexrecordoption.body": "all",
                "indexing.tokenLength.body": "70000",
                "text.maxTokenLength": "0",
                "indexing.fastfields": "Id,nobody,blob,big,body",
                "indexing.storeonlyfields": "ghost",
            }
        )
    message = str(caught.value)
    for part in (
        "there is no field 'nope'",
        "'Id' is i64, not text, and cannot be ip",
        "there is no type 'jpeg'",
        "no tokenizer 'klingon_stem'",
        "'Id' is i64 and has no tokenizer",
        "'all' is none of position, freq, basic",
        "'70000' must be between 1 and 65530",
        "'0' must be between 1 and 65530",
        "there is no field 'nobody'",
        "'blob' is binary",
        "'big' has more than 18 digits",
        "'body' is text; only numbers",
        "there is no field 'ghost'",
        "Available fields: Id, Title, body, ip, meta, tags, blob, big, d.",
    ):
        assert part in message


def test_a_nested_name_is_checked_by_its_column():
    assert mapped(**{"indexing.tokenizer.meta.a": "whitespace"}).by_name["meta"].tokenizer == (
        "whitespace"
    )


def test_the_log_keeps_the_mapping():
    mapping = mapped(
        **{
            "indexing.typemap.ip": "ip",
            "indexing.tokenizer.body": "ngram(2,4)",
            "indexing.indexrecordoption.body": "freq",
            "indexing.tokenLength.Title": "legacy",
            "indexing.fastfields": "id",
            "indexing.storeonlyfields": "tags",
        }
    )
    assert TableMapping.from_json(mapping.to_json()) == mapping
    entries = {e["name"]: e for e in json.loads(mapping.to_json())}
    assert entries["Id"] | {"name": "Id", "type": "i64", "fast": True} == entries["Id"]
    assert entries["meta"]["type"] == "object"
    assert entries["d"]["type"] == "datetime"
    assert entries["body"]["tokenizer"] == "ngram(2,4)"


def test_a_mapping_of_the_scala_product_is_read():
    text = (
        '{"field_mappings":[{"name":"id","type":"text","tokenizer":"raw","fast":true,'
        '"indexed":true,"stored":true},{"name":"body","type":"text"},{"name":"t","type":"datetime"},'
        '{"name":"o","type":"object"}]}'
    )
    kinds = {f.name: f.kind for f in TableMapping.from_json(text).fields}
    assert kinds == {"id": "string", "body": "text", "t": "timestamp", "o": "json"}


@pytest.mark.parametrize("text", ["{", "[1]", '[{"name":"a","type":"x"}]', "3"])
def test_a_broken_mapping_is_a_sentence(text):
    with pytest.raises(SchemaError, match="mapping in the log cannot be read"):
        TableMapping.from_json(text)


def test_a_field_name_of_the_index_cannot_be_forged():
    with pytest.raises(SchemaError, match="not the name of a field"):
        TableMapping.from_json('[{"name":"a","type":"text","field":"_row"}]')


def test_the_fingerprint_tells_analyzers_apart_and_nothing_else():
    plain = mapped()
    for options, same in (
        ({"text.indexRecordOption": "basic"}, True),
        ({"indexing.fastfields": "Id"}, True),
        ({"indexing.tokenizer.body": "whitespace"}, False),
        ({"indexing.tokenLength.body": "40"}, False),
        ({"indexing.typemap.body": "json"}, False),
        ({"indexing.storeonlyfields": "body"}, False),
    ):
        assert compatible(plain, mapped(**options), ["Id", "body"]) is same
    assert not compatible(plain, plain, ["missing"])


def test_a_table_keeps_its_choices_and_its_numbers():
    old = mapped(**{"indexing.typemap.ip": "ip", "indexing.tokenizer.body": "en_stem"})
    wider = pa.schema([("new", pa.string()), *SCHEMA])
    kept = build_mapping(wider, configuration(), base=old)
    assert kept.by_name["ip"].kind == "ip"
    assert kept.by_name["body"] == old.by_name["body"]
    assert kept.by_name["new"].field == "f5"
    changed = build_mapping(
        wider, configuration(**{"indexing.tokenizer.body": "default"}), base=old
    )
    assert changed.by_name["body"].tokenizer == "default"
    assert changed.by_name["body"].field == old.by_name["body"].field


WORDS = [
    ("default", "The Wi-Fi's RUNNING_fast", ["the", "wi", "fi", "s", "running", "fast"]),
    ("whitespace", "The Wi-Fi's  RUNNING", ["The", "Wi-Fi's", "RUNNING"]),
    ("raw", "The Wi-Fi", ["The Wi-Fi"]),
    ("en_stem", "Running runners", ["run", "runner"]),
    ("de_stem", "Häuser laufend", ["haus", "laufend"]),
    ("fr_stem", "continuellement", ["continuel"]),
    ("ngram", "Abc", ["ab", "abc", "bc"]),
    ("ngram(1,1)", "aB", ["a", "b"]),
]


@pytest.mark.parametrize(("tokenizer", "text", "words"), WORDS)
def test_tokenizers(tokenizer, text, words):
    assert [w.text for w in Analyzer(tokenizer).words(text)] == words


def test_longer_words_are_dropped_not_cut():
    analyzer = Analyzer("default", 5)
    assert [w.text for w in analyzer.words("12345 123456 ok")] == ["12345", "ok"]
