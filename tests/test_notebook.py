"""What Jupyter shows: `%load_ext indextables`, `%%search`, rows, plans and histories."""

from __future__ import annotations

import atexit
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import indextables as it
from indextables.table.html import SHOWN_ROWS, rows_html

EVIL = "<script>alert(1)</script>"
ROWS = pa.table(
    {
        "id": [1, 2, 3],
        "body": ["a red fox & <b>bold</b> dog", f"{EVIL} fox", None],
        f"<img src=x>{EVIL}": ["</td>", "\x1b[31m", "<mark>x</mark>"],
        "at": pa.array([0, None, 10**6], pa.timestamp("us", "UTC")),
    }
)


@pytest.fixture
def table(tmp_path):
    return it.Table.create(tmp_path / "docs", data=ROWS, name=EVIL)


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    config = Config()
    config.HistoryManager.enabled = False
    made = InteractiveShell(config=config, ipython_dir=str(tmp_path_factory.mktemp("ipython")))
    made.run_line_magic("load_ext", "indextables")
    yield made
    made.atexit_operations()  # `__main__` is the module of the tests again
    atexit.unregister(made.atexit_operations)


def html_of(shell, value):
    return shell.display_formatter.format(value)[0].get("text/html")


def tags(shown):
    """Every tag in some HTML, and that its attributes are ours."""
    assert not re.search(r"<(script|img|b>bold)|\x1b", shown)
    return re.findall(r"<(\w+)", shown)


def test_a_search_shows_its_words_marked(shell, table):
    hits = table.search("fox", snippets=["body"])
    assert isinstance(hits, pa.Table)
    shown = html_of(shell, hits)
    assert "a red <mark>fox</mark> &amp; &lt;b&gt;bold&lt;/b&gt; dog" in shown
    assert "&lt;script&gt;" in shown and shown.count("<mark>") == 2 == tags(shown).count("mark")
    assert shown.index("_score") < shown.index("body") and "_snippet_" not in shown
    assert "2 rows" in shown
    # A snippet without its text, and text that only looks like marks.
    alone = html_of(shell, hits.select(["_snippet_body"]))
    assert "_snippet_body" in alone and alone.count("<mark>") == 2
    crafted = html_of(shell, pa.table({"_snippet_x": [f"<b>{EVIL}</b><mark>", None]}))
    assert crafted.count("<mark>") == 1 and "&lt;mark&gt;" in crafted and tags(crafted)


def test_rows_of_any_kind(shell, table):
    shown = html_of(shell, table.scan())
    assert "<mark>" not in shown and "null</i>" in shown and "1970-01-01 00:00:01Z" in shown
    assert tags(shown)
    assert "CREATE" in html_of(shell, table.history()).upper()
    many = pa.table({"a": range(SHOWN_ROWS + 5), "n": [{"x": [EVIL]}] * (SHOWN_ROWS + 5)})
    shown = html_of(shell, many)
    assert f"{SHOWN_ROWS} of {SHOWN_ROWS + 5} rows" in shown and tags(shown).count("tr") == 51
    assert "the first 50 rows" in rows_html(many, is_all=False)
    twice = pa.table([[1], [2]], names=["a", "a"])
    assert html_of(shell, twice).count("<th ") == 2
    assert "0 rows" in html_of(shell, table.search("nothing", snippets=["body"]))
    assert "0 rows" in html_of(shell, pa.table({}))


def test_tables_plans_and_indexes_show_themselves(shell, table, tmp_path):
    assert "&lt;script&gt;" in html_of(shell, table) and tags(html_of(shell, table))
    plan = table.explain(where=f"body indexquery 'fox' AND body != '{EVIL}'")
    assert plan.startswith("Scan of ") and isinstance(plan, str)
    shown = html_of(shell, plan)
    assert "width:100.0%" in shown and "&lt;script&gt;" in shown and tags(shown)
    (tmp_path / "files").mkdir()
    pq.write_table(ROWS, tmp_path / "files" / "rows.parquet")
    index = it.SearchIndex.create(
        tmp_path / "index", source=tmp_path / "files", format="parquet", columns=["body"]
    )
    assert "text (default)" in html_of(shell, index) and tags(html_of(shell, index))


def test_a_cell_searches(shell, table, tmp_path):
    found = shell.run_cell_magic(
        "search", f"'{table.uri}' --limit 1 -c id -c body", "fox AND red\n"
    )
    assert found.to_pydict()["id"] == [1] and found.schema.names[-1] == "_snippet_body"
    shell.user_ns["mine"] = table
    found = shell.run_cell_magic("search", "mine --where 'id > 1' --field body", "fox")
    assert found["id"].to_pylist() == [2]
    result = shell.run_cell(f"%%search {table.uri}\nfox")
    assert result.success and "<mark>fox</mark>" in html_of(shell, result.result)


@pytest.mark.parametrize(
    ("line", "cell", "said"),
    [
        ("nowhere", "fox", "is not an index table"),
        ("mine", "fox AND (", "Cannot parse the search query"),
        ("", "fox", "TABLE.*usage: %%search"),
        ("mine --limit many", "fox", "--limit.*many"),
        ("mine --where 'id", "fox", "No closing quotation"),
    ],
)
def test_mistakes_are_one_sentence(shell, table, line, cell, said):
    shell.user_ns["mine"] = table
    with pytest.raises(UsageError, match=said):
        shell.run_cell_magic("search", line, cell)


def test_the_extension_can_be_unloaded(shell, table):
    hits = table.search("fox")
    assert html_of(shell, hits)
    shell.run_line_magic("unload_ext", "indextables")
    assert html_of(shell, hits) is None
    assert shell.find_cell_magic("search") is None
    shell.run_line_magic("load_ext", "indextables")
    assert html_of(shell, hits)
