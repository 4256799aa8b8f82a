"""Queries that must not end the process: each runs in a subprocess, which must answer or refuse."""

from __future__ import annotations

import subprocess
import sys
import textwrap

PRELUDE = """
    import sys, threading, warnings
    import pyarrow as pa
    import indextables as it
    from indextables.errors import IndexTablesError

    config = {"spark.indextables.cache.disk.path": sys.argv[1] + "/cache"}

    def table(name, columns, **options):
        made = it.Table.create(f"{sys.argv[1]}/{name}", columns.schema, config=config, **options)
        made.append(columns)
        return made

    def ask(search):
        '''How many rows every way of asking finds, or the error that all of them raise.'''
        t, query = search
        quoted = query.replace(chr(92), chr(92) * 2).replace("'", "''")
        answers = []
        for way in (
            lambda: t.search(query, limit=None).num_rows,
            lambda: t.scan(where=f"_indexall indexquery '{quoted}'").num_rows,
            lambda: t.count(where=f"_indexall indexquery '{quoted}'"),
        ):
            try:
                answers.append(way())
            except IndexTablesError as error:
                answers.append(type(error).__name__)
        if query.isprintable():  # SQL text refuses half characters before the search is read
            assert len(set(answers)) == 1, (query[:80], answers)
        return answers[0]

    def in_thread(kilobytes, call):
        '''The same in a thread with a small stack.'''
        answers = []
        threading.stack_size(kilobytes << 10)
        thread = threading.Thread(target=lambda: answers.append(call()))
        thread.start()
        thread.join()
        threading.stack_size(0)
        return answers[0]

    small = table("small", pa.table({"t": ["a b c", "w1 w2", None], "u": ["x", "a", "b"]}))
"""


def run(code: str, folder: object) -> str:
    source = textwrap.dedent(PRELUDE) + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", source, str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-2000:]}"
    return done.stdout


def test_a_search_of_thousands_of_words(tmp_path):
    out = run(
        """
        print(ask((small, " ".join(f"w{n}" for n in range(1000)))))
        print(ask((small, " AND ".join(f"w{n}" for n in range(2000)))))
        print(ask((small, "a " + " ".join(f"-x{n}" for n in range(2000)))))
        print(in_thread(256, lambda: ask((small, " ".join(f"w{n}" for n in range(1000))))))
        """,
        tmp_path,
    )
    assert out.split() == ["1", "0", "2", "1"]


def test_a_table_of_1200_text_columns(tmp_path):
    out = run(
        """
        wide = table("wide", pa.table({f"c{n}": ["a" if n == 7 else "b"] for n in range(1200)}))
        print(ask((wide, "a")), ask((wide, "zzz")), ask((wide, "a AND b")))
        print(ask((wide, " ".join(f"w{n}" for n in range(1000)))))
        """,
        tmp_path,
    )
    assert out.split() == ["1", "0", "1", "TooManyClausesError"]


def test_deep_nesting_in_a_thread_with_a_small_stack(tmp_path):
    out = run(
        """
        deep = "a"
        for n in range(99):
            deep = f"({deep} w{n} x{n} y{n} +z)^1.5 b" if n % 2 else f"(a {deep})"
        print(in_thread(512, lambda: ask((small, deep))))
        print(in_thread(512, lambda: ask((small, "NOT " * 99 + "a"))))
        print(in_thread(512, lambda: ask((small, "(" * 99 + "a" + ")" * 99))))
        print(ask((small, "(" * 5000 + "a" + ")" * 5000)))
        """,
        tmp_path,
    )
    assert out.split() == ["3", "1", "2", "QuerySyntaxError"]


STRANGE = [
    '"' + "a " * 4_000 + '"',
    '"' + "a " * 4_000 + '"~3',
    '"a b"~999999999',
    '"a b c"~999999999',
    "a" * 5_000,
    "a" * 5_000 + "~2",
    "a" * 5_000 + "*",
    "*" + "a" * 5_000 + "*",
    "?" * 5_000,
    "*a" * 4_000,
    "/" + "(" * 300 + "a" + ")" * 300 + "/",
    "/" + "|".join(f"w{n}" for n in range(2_000)) + "/",
    "/((a{0,50}){0,50}){0,50}/",
    "/a{1000000}/",
    "/[a-z]{900}/",
    r"/\p{L}{50}/",
    "/(?i)ÄÖÜ+/",
    "/a**/",
    "/.*.*.*.*.*.*.*c/",
    '""',
    '"" ""~3',
    "t:\"\"",
    "t: IN []",
    "t: IN [" + "a " * 3_000 + "]",
    "t:[* TO *]",
    "t:{z TO a}",
    "\0",
    "a\0b",
    '"a\0b c"',
    "*\0*",
    "/a\0b/",
    "\U0010ffff",
    "ﬁ*",
    "İ*",
    "a^0",
    "a^1e308",
    "a^" + "9" * 400,
    "(((a^99999)^99999)^99999)^99999",
    "a^0.0000000000000000000000000000000000000000000001",
    "t." * 2_000 + "x:a",
    "~1", "~", "a~0", "a~3", "\\", "a\\", "+", "-", "*", "?", ":", "t:", "::1",
    "2001:db8::1/64", "0.0.0.0/0", "[a TO", "{", "//", "/", "/ /", "''",
]  # fmt: skip


def test_strange_queries_are_answered_or_refused(tmp_path):
    (tmp_path / "queries").write_bytes(repr(STRANGE).encode())
    out = run(
        """
        import ast
        queries = ast.literal_eval(open(sys.argv[1] + "/queries", encoding="utf-8").read())
        nested = table(
            "nested",
            pa.table({"j": ['{"t": {"x": "a b c"}}', "not json", "[" * 500 + "]" * 500],
                      "ip": ["1.2.3.4", "::1", "x"], "s": ["a", "b", None], "n": [1, 2, 3]}),
            mapping={"j": "json", "ip": "ip", "s": "string"},
        )
        for query in queries:
            for asked in (small, nested):
                print(asked.uri[-6:], repr(query[:40]), ask((asked, query)))
        for query in ("j." + "k." * 2_000 + "k:a", "j.t.x:a", "j" + ".t" * 100 + ":>5"):
            print(ask((nested, query)))
        """,
        tmp_path,
    )
    assert len(out.splitlines()) == 2 * len(STRANGE) + 3


def test_patterns_take_linear_time(tmp_path):
    out = run(
        """
        texts = ["a" * 250 + "b", "a" * 40 + "c", "a\\nb"]
        words = pa.table({"t": texts, "j": ['{"p": "aac"}'] * 3})
        many = table("many", words, mapping={"j": "json"})
        for query in ("t:*a*a*a*a*a*a*a*a*a*a*c", "t:" + "*a" * 30 + "*c", "t:/(a*)*(a*)*c/",
                      "t:?*?*?*?*?*?*?*?*?*?*d", "j.p:*a*a*c", "/((a{0,20}){0,20}){0,20}/"):
            print(ask((many, query)))
        long = table("long", pa.table({"t": ["a " * 200_000 + "b", "b a"]}))
        print(long.search('"' + "a " * 500 + 'b"~3').num_rows)
        """,
        tmp_path,
    )
    assert out.split() == ["1", "1", "1", "0", "3", "QuerySyntaxError", "1"]


def test_small_stacks_and_half_characters(tmp_path):
    out = run(
        r"""
        for query in ("a", '"a b c"', '"a b c"~2', "a*", "/[ab]+/", "w1~1", "[a TO c]"):
            print(in_thread(256, lambda: ask((small, query))))
        print(ask((small, "a \ud800 b")))
        """,
        tmp_path,
    )
    assert out.split() == ["2", "1", "1", "2", "3", "1", "3", "QuerySyntaxError"]
