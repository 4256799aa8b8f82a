"""How good the ten best rows are: judged queries, and documents found again by their titles.

Cranfield has 1,400 abstracts and queries that people judged. It lies beside the project in
`../shared/cranfield`, or where `CRANFIELD` says, and is no part of it: without it the module says
so and goes on. Ours, bare Tantivy, bm25s and Lance are asked the same words in one run. Processor
time of the ten best with their `id`, a query on average, the least of several rounds; and of the
hundred best, because recall is measured among these. Ours keeps what it prepared for a search that
is asked again, so it is timed in two ways: with a query that it was never asked before, which has
the words of one that it was (a blank more makes another text of it), and with the same one again.
Peers keep nothing between queries.

Bare Tantivy has its ids in a list of Python, which is the least that can be done and which no
program has. One that uses Tantivy as it is meant has them in Tantivy's own store, which is the
second peer. What bare Tantivy takes with ids of a Parquet file, whose footer is known and which is
read by pyarrow, is the floor of a table whose rows are in Parquet. Asked with scores that are added
two at a time, as ours are so that they do not depend on the layout, Tantivy alone is slower; that
is the floor of such scores.

The other test asks for manual pages of this machine by the line that describes them, which is taken
out of the page. Nobody judged the answers: another page may be as good. So it compares engines
and says little about quality.
"""

from __future__ import annotations

import gzip
import itertools
import json
import math
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import bm25s
import lance
import pyarrow as pa
import pyarrow.parquet as pq
import Stemmer
import tantivy
from bm25s.stopwords import STOPWORDS_EN_PLUS
from lance.query import MatchQuery

from benchmarks.measure import Result
from indextables import Table

CRANFIELD = Path(os.environ.get("CRANFIELD", Path(__file__).parents[2] / "shared" / "cranfield"))
MANUALS = Path("/usr/share/man")
PAGES, TITLES = 3_000, 500
DEPTH, TOP, HUNDRED, ROUNDS = 1_000, 10, 100, 5
ENGLISH = "english"
"""The chain that we recommend for English."""
FLOOR = "bare Tantivy, ids read from Parquet"
STORED = "bare Tantivy, ids from its own store"
AGAIN = "ours, the same query again"
PAIRS = "bare Tantivy, scores added in pairs"
_PEERS = ("bare Tantivy", STORED, FLOOR, PAIRS)

Ask = Callable[[str, int], list[int]]
"""The ids of the best documents for some words."""


@dataclass(frozen=True, slots=True)
class Query:
    """Words, and the documents that answer them."""

    words: str
    right: frozenset[int]


@dataclass(frozen=True, slots=True)
class Quality:
    """Means over all queries, and milliseconds of processor a query."""

    ndcg: float
    precision: float
    recall: float
    first: float
    cost: float

    def by(self, measure: str) -> float:
        return self.first if measure == "MRR" else self.ndcg

    def __str__(self) -> str:
        return (
            f"nDCG@10 {self.ndcg:.4f}, MAP {self.precision:.4f}, recall@100 {self.recall:.4f}, "
            f"MRR {self.first:.4f}, {self.cost:.2f} ms a query"
        )


def run(scale: float = 1.0) -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        if (CRANFIELD / "queries.jsonl").exists():
            documents, queries = _cranfield()
            engines = _engines(root / "cranfield", documents)
            yield from _compared("Cranfield", "nDCG@10", engines, queries)
            yield _layouts(root / "layouts", documents, queries)
        else:
            print(f"Cranfield is not at {CRANFIELD}: its figures are left out.", flush=True)
        documents, queries = _manuals(max(200, int(PAGES * scale)))
        if queries:
            engines = _engines(root / "manuals", documents)
            yield from _compared("Manual pages by their titles", "MRR", engines, queries)
        else:
            print(f"There are no manual pages in {MANUALS}: they are left out.", flush=True)


# --- documents -----------------------------------------------------------------------------------


def _cranfield() -> tuple[pa.Table, list[Query]]:
    with (CRANFIELD / "documents.jsonl").open() as lines:
        documents = [json.loads(line) for line in lines]
    with (CRANFIELD / "queries.jsonl").open() as lines:
        queries = [json.loads(line) for line in lines]
    table = pa.table({"id": [d["id"] for d in documents], "text": [d["text"] for d in documents]})
    return table, [
        Query(_words(q["text"]), frozenset(int(d) for d, good in q["judgements"].items() if good))
        for q in queries
    ]


def _manuals(most: int) -> tuple[pa.Table, list[Query]]:
    """Pages without the line that describes them, and those lines."""
    texts: dict[str, str] = {}
    for file in sorted(MANUALS.glob("man[2-8]/*.gz")):
        page = gzip.decompress(file.read_bytes()).decode(errors="replace")
        # Only what the old macros mark is read, and pages that stand for others have no name.
        found = re.search(r'\.SH "?NAME"?\n(.+?)\n(?=\.SH)(.*)', page, re.DOTALL)
        if found is not None and " \\- " in found[1]:
            title = _words(_plain(found[1].partition(" \\- ")[2]))
            texts.setdefault(title, _plain(found[2]))
        if len(texts) == most:
            break
    titles = [t for t in texts if len(t.split()) >= 3]
    step = -(-len(titles) // TITLES) or 1
    numbers = {title: n for n, title in enumerate(texts)}
    queries = [Query(title, frozenset([numbers[title]])) for title in titles[::step]]
    table = pa.table({"id": list(numbers.values()), "text": list(texts.values())})
    return table, queries


def _plain(page: str) -> str:
    page = re.sub(r'^[.\']\\".*$|^[.\'][A-Za-z]+', " ", page, flags=re.MULTILINE)
    return re.sub(r"\\f.|\\[-&|e]|\\\(..", " ", page)


def _words(text: str) -> str:
    """Nothing but words in lower case, which every engine's syntax reads as words."""
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


# --- engines -------------------------------------------------------------------------------------


def _engines(root: Path, data: pa.Table) -> dict[str, Ask]:
    root.mkdir()
    stemmed = _ours(root / "en_stem", data, "en_stem")
    made: dict[str, Ask] = {
        "ours": partial(_search, _ours(root / "default", data)),
        "ours, en_stem": partial(_search, stemmed),
        "ours, en_stem, no stop words in queries": lambda words, k: _search(
            stemmed, " ".join(w for w in words.split() if w not in STOPWORDS_EN_PLUS) or words, k
        ),
    }
    made["ours, english"] = partial(_search, _ours(root / ENGLISH, data, ENGLISH))
    made["bare Tantivy"] = _tantivy(root / "bare", data, "default")
    made[FLOOR] = _with_parquet(made["bare Tantivy"], root / "ids.parquet", data)
    made[STORED] = _tantivy(root / "stored", data, "default", stored=True)
    made[PAIRS] = _tantivy(root / "pairs", data, "default", parse=_pairs)
    made["bare Tantivy, en_stem"] = _tantivy(root / "bare_stem", data, "en_stem")
    made["bare Tantivy, stop words and stems"] = _tantivy(root / "bare_english", data, ENGLISH)
    made["bm25s, stop words and stems"] = _bm25s(data)
    made["Lance, its default (stop words and stems)"] = _lance(root / "lance", data)
    made["Lance, neither"] = _lance(root / "plain", data, stem=False, remove_stop_words=False)
    return made


def _ours(place: Path, data: pa.Table, tokenizer: str = "default", splits: int = 1) -> Table:
    config = {
        "spark.indextables.indexing.tokenizer.text": tokenizer,
        "spark.indextables.cache.disk.path": str(place.parent / "cache"),
        "spark.indextables.mergeOnWrite.enabled": "false",
    }
    table = Table.create(place, data.schema, config=config)
    for n in range(splits):
        table.append(data.take(list(range(n, data.num_rows, splits))))
    return table


def _search(table: Table, words: str, k: int) -> list[int]:
    found = table.search(words, fields=["text"], columns=["id"], limit=k)
    ids: list[int] = found["id"].to_pylist()
    return ids


def _parse(index: tantivy.Index, words: str) -> tantivy.Query:
    return index.parse_query(words, ["text"])


def _pairs(index: tantivy.Index, words: str) -> tantivy.Query:
    """Any of the words, as a tree of pairs."""
    queue = [
        tantivy.Query.term_query(index.schema, "text", word, index_option="freq")
        for word in dict.fromkeys(words.split())
    ]
    for at in range(0, 2 * len(queue) - 2, 2):
        two = [(tantivy.Occur.Should, one) for one in queue[at : at + 2]]
        queue.append(tantivy.Query.boolean_query(two))
    return queue[-1]


def _tantivy(
    place: Path,
    data: pa.Table,
    tokenizer: str,
    parse: Callable[[tantivy.Index, str], tantivy.Query] = _parse,
    *,
    stored: bool = False,
) -> Ask:
    """Tantivy alone; ids are in its store or in a list."""
    place.mkdir()
    builder = tantivy.SchemaBuilder()
    if stored:
        builder.add_integer_field("id", stored=True)
    builder.add_text_field("text", tokenizer_name=tokenizer, index_option="position")
    index = tantivy.Index(builder.build(), path=str(place))
    simple = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    # Tantivy's own list has 33 words, and `what`, `have` and `been` are not among them.
    stop = tantivy.Filter.custom_stopword(list(STOPWORDS_EN_PLUS))
    chain = simple.filter(tantivy.Filter.lowercase()).filter(stop)
    index.register_tokenizer(ENGLISH, chain.filter(tantivy.Filter.stemmer("english")).build())
    writer = index.writer(heap_size=100_000_000, num_threads=1)
    for id_, text in zip(data["id"].to_pylist(), data["text"].to_pylist(), strict=True):
        both = {"text": text, "id": id_} if stored else {"text": text}
        writer.add_document(tantivy.Document(**both))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher, ids = index.searcher(), data["id"].to_pylist()
    assert searcher.num_segments == 1

    def ask(words: str, k: int) -> list[int]:
        hits = searcher.search(parse(index, words), k).hits
        if stored:
            return [searcher.doc(address)["id"][0] for _, address in hits]
        return [ids[address.doc] for _, address in hits]

    return ask


def _with_parquet(ask: Ask, file: Path, data: pa.Table) -> Ask:
    """The same, with the ids of the hits read from Parquet."""
    pq.write_table(data, file, row_group_size=8_192)
    footer = pq.read_metadata(file)
    places = {id_: place for place, id_ in enumerate(data["id"].to_pylist())}

    def read(words: str, k: int) -> list[int]:
        rows = [places[id_] for id_ in ask(words, k)]
        opened = pq.ParquetFile(file, metadata=footer)
        column = opened.read_row_groups(
            list(range(footer.num_row_groups)), columns=["id"], use_threads=False
        )
        ids: list[int] = column.take(rows)["id"].to_pylist()
        return ids

    return read


def _bm25s(data: pa.Table) -> Ask:
    split = partial(
        bm25s.tokenize, stopwords="en", stemmer=Stemmer.Stemmer("english"), show_progress=False
    )
    index = bm25s.BM25(corpus=data["id"].to_pylist())
    index.index(split(data["text"].to_pylist()), show_progress=False)

    def ask(words: str, k: int) -> list[int]:
        asked: Any = split(words)
        k = min(k, data.num_rows)
        found, scores = index.retrieve(asked, k=k, show_progress=False, n_threads=0)
        return [int(d) for d, score in zip(found[0], scores[0], strict=True) if score > 0]

    return ask


def _lance(place: Path, data: pa.Table, **options: bool) -> Ask:
    made = lance.write_dataset(data, str(place))
    made.create_scalar_index("text", index_type="INVERTED", with_position=True, **options)
    dataset = lance.dataset(place)

    def ask(words: str, k: int) -> list[int]:
        wanted: Any = MatchQuery(words, "text")
        found = dataset.to_table(full_text_query=wanted, columns=["id", "_score"], limit=k)
        ids: list[int] = found["id"].to_pylist()
        return ids

    return ask


# --- figures -------------------------------------------------------------------------------------


def _compared(
    what: str, measure: str, made: Mapping[str, Ask], queries: Sequence[Query]
) -> Iterator[Result]:
    costs = _costs(made, queries, TOP)
    found = {name: _quality(ask, queries, costs[name]) for name, ask in made.items()}
    # Ours adds in a fixed order and breaks ties by rows, which may swap neighbours of Tantivy's.
    peers = {
        "ours": ("bare Tantivy", 0.995),
        "ours, en_stem": ("bare Tantivy, en_stem", 0.995),
        "ours, english": ("Lance, its default (stop words and stems)", 1),
    }
    for name, quality in found.items():
        peer, bar = peers.get(name, ("bare Tantivy", 0))
        yield Result(
            f"{what}, {len(queries)} queries: {measure} of {name}, against {peer}",
            quality.by(measure) / found[peer].by(measure), bar, "at least", str(quality),
        )  # fmt: skip
    floors = {
        "ours": "bare Tantivy",
        "ours, en_stem": "bare Tantivy, en_stem",
        "ours, english": "bare Tantivy, stop words and stems",
    }
    for name, floor in floors.items():
        if name in made:
            yield Result(
                f"{what}: processor time a query of {name}, against {floor}",
                costs[name] / costs[floor], 3, "at most",
                f"{costs[name]:.2f} / {costs[floor]:.2f} ms",
            )  # fmt: skip
    deep = _costs({name: made[name] for name in ("ours", *_PEERS)}, queries, HUNDRED)
    for best, spent in (("ten", costs), ("hundred", deep)):
        for name in ("ours", AGAIN):
            for floor in _PEERS:
                if (best, name, floor) == ("ten", "ours", "bare Tantivy"):
                    continue  # which is among those above
                yield Result(
                    f"{what}: processor time a query of {name}, against {floor}, the {best} best",
                    spent[name] / spent[floor], 3, "at most",
                    f"{spent[name]:.2f} / {spent[floor]:.2f} ms",
                )  # fmt: skip


def _costs(made: Mapping[str, Ask], queries: Sequence[Query], k: int) -> dict[str, float]:
    """Milliseconds of processor a query, engines in turns."""
    least = dict.fromkeys([*made, AGAIN], math.inf)
    for _ in range(ROUNDS + _PREPARING):
        blanks = " " * next(_numbers)
        for name, ask in [*made.items(), (AGAIN, made["ours"])]:
            # Another text with the same words; the same one is prepared when it was asked often.
            other = "" if name == AGAIN else blanks
            texts = [query.words + other for query in queries]
            start = time.process_time()
            for text in texts:
                ask(text, k)
            spent = (time.process_time() - start) * 1000 / len(queries)
            least[name] = min(least[name], spent)
    return least


_numbers = itertools.count(1)
_PREPARING = 4
"""Rounds after which all that can be kept of a query is."""


def _quality(ask: Ask, queries: Sequence[Query], cost: float) -> Quality:
    rows = [_figures(ask(q.words, DEPTH), q.right) for q in queries]
    ndcg, precision, recall, first = (sum(c) / len(rows) for c in zip(*rows, strict=True))
    return Quality(ndcg, precision, recall, first, cost)


def _figures(found: Sequence[int], right: frozenset[int]) -> tuple[float, float, float, float]:
    """nDCG@10, average precision, recall@100 and the reciprocal of the first right one's rank."""
    ranks = [rank for rank, document in enumerate(found, start=1) if document in right]
    gain = sum(1 / math.log2(rank + 1) for rank in ranks if rank <= TOP)
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(TOP, len(right)) + 1))
    precision = sum(n / rank for n, rank in enumerate(ranks, start=1)) / len(right)
    recall = sum(rank <= 100 for rank in ranks) / len(right)
    return gain / ideal, precision, recall, 1 / ranks[0] if ranks else 0.0


def _layouts(root: Path, data: pa.Table, queries: Sequence[Query]) -> Result:
    """How many queries have the same hundred rows and scores in every layout."""
    root.mkdir()
    tables = [_ours(root / str(n), data, splits=n) for n in (1, 10, 100)]
    answers = [[_ranking(table, q) for q in queries] for table in tables]
    tables[-1].merge_splits()
    answers.append([_ranking(tables[-1], q) for q in queries])
    same = sum(all(a == row[0] for a in row) for row in zip(*answers, strict=True))
    splits = tables[-1].view.snapshot.num_files
    return Result(
        "Cranfield: queries whose hundred best rows and scores are the same in every layout",
        same / len(queries), 1, "at least", f"1, 10 and 100 splits, and {splits} after a merge",
    )  # fmt: skip


def _ranking(table: Table, query: Query) -> list[dict[str, Any]]:
    found = table.search(query.words, fields=["text"], columns=["id"], limit=100)
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows
