"""What every command has: exit codes, sentences, colours, JSON, secrets, completion, widths."""

from __future__ import annotations

import json
import shlex
import subprocess

import pytest
from cli_tables import ESCAPE
from terminal import PROGRAM, environment, in_pipe, on_terminal

from indextables import __version__
from indextables.cli import main
from indextables.cli import settings as settings_module
from indextables.cli.app import app
from indextables.cli.settings import Settings

COMMANDS = [
    "create", "import", "export", "search", "facets", "sql", "describe", "history", "explain",
    "explain-score",
    "merge", "xref", "purge", "verify", "restore", "checkpoint", "report", "serve", "top",
    "analyze", "complete", "suggest", "more-like",
]  # fmt: skip


def test_every_command_has_help_and_the_common_options(cli):
    assert sorted(c.name for c in app.registered_commands) == sorted(COMMANDS)
    for command in COMMANDS:
        text = ESCAPE.sub("", cli.ok(command, "--help"))
        for option in ("--json", "--config", "--storage-option", "--debug"):
            assert option in text, command
    assert all(command in cli.ok("--help") for command in COMMANDS)


def test_version(cli):
    assert cli.ok("--version") == f"indextables {__version__}\n"


def test_exit_codes_of_a_process(docs, cli):
    done = in_pipe(["describe", docs, "--json"], cwd=cli.folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["rows"] == 60
    wrong = in_pipe(["describe", "nothing"], cwd=cli.folder)
    assert wrong.returncode == 1 and wrong.stdout == ""
    assert wrong.stderr.startswith("error: ") and wrong.stderr.count("\n") == 1
    assert "nothing' is not an index table" in wrong.stderr
    assert in_pipe(["describe", docs, "--nonsense"], cwd=cli.folder).returncode == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe"],
        ["nonsense"],
        ["search", "docs", "x", "--limit", "0"],
        ["describe", "docs", "--config", "x"],
        ["export", "docs", "x", "--format", "xml"],
    ],
)
def test_a_wrong_command_line_is_exit_code_2(cli, arguments):
    cli.error(*arguments, code=2)


def test_an_interrupt_before_the_command_begins_is_quiet(monkeypatch):
    def interrupted(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr("indextables.cli.app.app", interrupted)
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130


def test_a_reader_that_has_seen_enough_is_no_error(docs, cli):
    process = subprocess.Popen(
        [*PROGRAM, "sql", "SELECT a.body FROM docs a, docs b, docs c"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cli.folder, env=environment(),
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == b"body\n"
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert (process.wait(120), errors) == (0, b"")


def test_closed_output_is_no_error(docs, cli):
    for arguments, code in (["describe", docs], 0), (["describe", "nothing"], 1):
        command = shlex.join([*PROGRAM, *arguments])
        done = subprocess.run(
            ["sh", "-c", f"{command} >&-"], stderr=subprocess.PIPE, cwd=cli.folder,
            env=environment(), check=False,
        )  # fmt: skip
        assert done.returncode == code and done.stderr.count(b"\n") == code, done.stderr


def test_debug_shows_where_an_error_comes_from(cli):
    result = cli("describe", "nothing", "--debug")
    assert result.exit_code == 1
    assert "Traceback" in result.stderr and "NotATableError" in result.stderr
    assert "\nerror: " in result.stderr


def test_a_mistake_of_ours_is_a_sentence_too(cli, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("deep inside")

    monkeypatch.setattr(settings_module.Settings, "open", broken)
    message = cli.error("describe", "docs")
    assert "should not have happened" in message and "--debug" in message


def test_configuration_by_long_and_short_names(cli, docs):
    for key in ("checkpoint.interval", "spark.indextables.checkpoint.interval"):
        cli.ok("describe", docs, "--config", f"{key}=5")
        assert "expected" in cli.error("describe", docs, "--config", f"{key}=never")
    message = cli.error("describe", docs, "--config", "checkpoint.intervall=5")
    assert "Did you mean spark.indextables.checkpoint.interval" in message


def test_secrets_are_never_shown(cli):
    secret = "AKIA-hush-hush"
    assert secret not in repr(Settings(config={"a": secret}, storage_options={"b": secret}))
    for arguments in (
        ["describe", "s3://bucket/t", "--storage-option", secret],
        ["describe", "s3://bucket/t", "--storage-option", f"no_such_option={secret}"],
        ["describe", "docs", "--storage-option", f"secret_access_key={secret}"],
        ["describe", f"s3://user:{secret}@bucket/t"],
        ["sql", f"SELECT * FROM indextables.`s3://user:{secret}@bucket/t`"],
        ["describe", "s3://bucket/t", "--storage-option", f"timeout={secret}", "--debug"],
    ):
        result = cli(*arguments)
        assert result.exit_code in (1, 2), arguments
        assert secret not in result.output, arguments


# --- the terminal ----------------------------------------------------------------------------


def test_colours_only_on_a_terminal(cli, docs):
    arguments = ["search", docs, "fox", "-c", "Id", "-c", "body", "-l", "2"]
    code, shown = on_terminal(arguments, columns=100, cwd=cli.folder)
    assert code == 0 and "\x1b[1;33mfox\x1b[0m" in shown and "┃" in shown
    _, plain = on_terminal(arguments, columns=100, cwd=cli.folder, env={"NO_COLOR": "1"})
    assert "33m" not in plain and "fox" in plain
    piped = in_pipe(arguments, cwd=cli.folder)
    assert "\x1b" not in piped.stdout + piped.stderr
    assert piped.stdout.splitlines()[0] == "Id\tbody\t_score\t_snippet_body"


def test_a_table_wider_than_the_terminal_is_shown_row_by_row(cli, docs):
    for columns in (30, 120):
        code, shown = on_terminal(
            ["sql", "SELECT * FROM docs WHERE Id < 2"], columns=columns, cwd=cli.folder
        )
        plain = ESCAPE.sub("", shown)
        assert code == 0
        assert max(len(line) for line in plain.splitlines()) <= columns
        assert ("row 1" in plain) == (columns < 80), columns
        assert "price" in plain and "word1" in plain


def test_a_terminal_shows_the_first_rows_and_says_so(cli, docs):
    code, shown = on_terminal(
        ["sql", "SELECT a.Id FROM docs a, docs b"], columns=80, cwd=cli.folder
    )
    assert code == 0 and "2,600 more rows" in shown


def test_cells_cannot_move_the_cursor(cli):
    cli.ok("create", "t", "a:string")
    (cli.folder / "x.jsonl").write_text(json.dumps({"a": "\x1b[2J gone \x1b]0;title\x07"}))
    cli.ok("import", "t", "x.jsonl")
    for arguments in (["sql", "SELECT * FROM t"], ["search", "t", "gone"]):
        _, shown = on_terminal(arguments, columns=80, cwd=cli.folder)
        assert "\x1b[2J" not in shown and "\x1b]0" not in shown
        assert r"\x1b[2J" in shown


def test_facts_on_a_terminal(cli, docs):
    code, shown = on_terminal(["describe", docs], columns=100, cwd=cli.folder)
    plain = ESCAPE.sub("", shown)
    assert code == 0 and "partition_columns  day" in plain and "reader 4" in plain


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion(cli, shell):
    done = in_pipe(
        [],
        cwd=cli.folder,
        env=environment(
            _INDEXTABLES_COMPLETE=f"complete_{shell}",
            COMP_WORDS="indextables se", COMP_CWORD="1",
            _TYPER_COMPLETE_ARGS="indextables se", _TYPER_COMPLETE_FISH_ACTION="get-args",
        ),
    )  # fmt: skip
    assert "search" in done.stdout, done


# --- buckets ---------------------------------------------------------------------------------


def test_a_table_in_a_bucket(cli, docs, s3):
    """Every kind of command with credentials on the command line, and none of them printed."""
    uri = f"{s3.uri}/cli/documents"
    options = [part for k, v in s3.options.items() for part in ("--storage-option", f"{k}={v}")]
    for arguments in (
        ["import", uri, "one.parquet"],
        ["search", uri, "fox", "-l", "1"],
        ["sql", f"SELECT count(*) AS n FROM '{uri}' WHERE body indexquery 'fox'"],
        ["sql", f"MERGE SPLITS '{uri}'"],
        ["describe", uri],
        ["verify", uri],
        ["report", uri, "-o", "page.html"],
        ["export", uri, "out.csv"],
    ):
        printed = cli.ok(*arguments, *options)
        assert "test-secret" not in printed
        assert printed or arguments[0] == "export"
    assert cli.rows("sql", f"SELECT count(*) AS n FROM '{uri}'", *options) == [{"n": 40}]
    assert "test-secret" not in (cli.folder / "page.html").read_text()
