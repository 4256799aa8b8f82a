"""merge, xref, purge, verify, restore and checkpoint."""

from __future__ import annotations

from pathlib import Path

from indextables.jobs.progress import progress
from indextables.table import Table


def test_merge_makes_one_split_of_each_partition(cli, docs):
    before = Table.open(docs).scan().sort_by("Id")
    (row,) = cli.rows("merge", docs, "--where", "day = '2024-01-01'")
    assert row["metrics"]["merged_files"] == 2
    text = cli.ok("merge", docs, "--target-size", "1G", "--max-groups", "2")
    header, values = (line.split("\t") for line in text.splitlines())
    assert dict(zip(header, values, strict=True))["merge_groups"] == "2"
    cli.ok("merge", docs)
    assert Table.open(docs).snapshot().num_files == 5
    assert Table.open(docs).scan().sort_by("Id").equals(before)
    assert "size" in cli.error("merge", docs, "--target-size", "large")
    assert "not an index table" in cli.error("merge", "nothing")


def test_xref_covers_every_split(cli, docs):
    cli.ok("import", "new", "one.parquet", "--partition-by", "day")  # too few to be indexed at once
    assert {row["action"] for row in cli.rows("xref", "new", "--dry-run")} == {"created"}
    assert Table.open("new").snapshot().xrefs == {}
    assert {row["action"] for row in cli.rows("xref", "new")} == {"created"}
    assert cli.rows("describe", "new")[0]["xrefs"] == 1
    assert {row["action"] for row in cli.rows("xref", "new")} <= {"unchanged"}
    assert {row["action"] for row in cli.rows("xref", "new", "--force-rebuild")} != {"unchanged"}


def test_purge_deletes_old_files_that_nobody_names(cli, docs):
    orphan = Path(docs) / "splits" / "split-00000000-0000-0000-0000-000000000000.split"
    orphan.parent.mkdir()
    orphan.write_bytes(b"x")
    (row,) = cli.rows("purge", docs, "--dry-run")
    assert row["metrics"]["orphaned_files_found"] == 0, "it is young"
    assert "24 hours" in cli.error("purge", docs, "--older-than", "0")
    unsafe = ("--config", "purge.retentionCheckEnabled=false", "--older-than", "0")
    (row,) = cli.rows("purge", docs, *unsafe, "--dry-run")
    assert row["metrics"]["orphaned_files_found"] == 1 and orphan.exists()
    cli.ok("purge", docs, *unsafe)
    assert not orphan.exists() and Table.open(docs).count() == 60


def test_verify_finds_damage_and_says_so_by_its_exit_code(cli, docs):
    assert {row["status"] for row in cli.rows("verify", docs)} == {"OK"}
    split = next(Path(docs).rglob("*.split"))
    data = bytearray(split.read_bytes())
    data[len(data) // 2] ^= 0xFF
    split.write_bytes(data)
    result = cli("verify", docs)
    assert result.exit_code == 1
    assert "\tfailed\t" in result.stdout and split.name in result.stderr
    assert "Traceback" not in result.output


def test_restore_makes_an_old_version_the_newest(cli, docs):
    (row,) = cli.rows("restore", docs, "--version", "0")
    assert row["version"] == 2 and Table.open(docs).count() == 40
    newest = cli.rows("history", docs)[1]
    (row,) = cli.rows("restore", docs, "--as-of", newest["timestamp"])
    assert Table.open(docs).count() == 60
    assert "either" in cli.error("restore", docs)
    assert "either" in cli.error("restore", docs, "--version", "0", "--as-of", "2024-01-01")
    assert "no version" in cli.error("restore", docs, "--version", "99")
    assert "not an index table" in cli.error("restore", "nothing", "--as-of", "2024-01-01")


def test_checkpoint_writes_one(cli, docs):
    (row,) = cli.rows("checkpoint", docs)
    assert (row["status"], row["checkpoint_version"]) == ("SUCCESS", 1)
    assert "not an index table" in cli.error("checkpoint", "nothing")


def test_outcomes_have_one_vocabulary_for_people_and_sql_s_for_programs(cli, docs):
    def said(*arguments):
        header, row = (line.split("\t") for line in cli.ok(*arguments).splitlines()[:2])
        return row[header.index("status")]

    assert said("merge", docs, "--target-size", "1G") == "done"
    assert said("merge", docs, "--target-size", "1G") == "nothing to do"
    assert said("checkpoint", docs) == "done"
    assert said("purge", docs, "--dry-run") == "dry run"
    assert said("verify", docs) == "ok"
    assert said("sql", f"PREWARM INDEXTABLES CACHE '{docs}'") == "done"
    assert cli.rows("checkpoint", docs)[0]["status"] == "SUCCESS"


def test_top_lists_the_jobs_that_run(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert cli.rows("top") == []
    with progress("Merging", 4, table="s3://key:secret@bucket/t", size=400):
        (job,) = cli.rows("top")
        assert (job["title"], job["table"], job["total"]) == ("Merging", "s3://bucket/t", 4)
        header, line = cli.ok("top", "--once").splitlines()
        assert header.split("\t")[:3] == ["job", "table", "state"]
        assert line.split("\t")[:3] == ["Merging", "s3://bucket/t", "0 of 4 splits, 0 B of 400 B"]
    assert cli.ok("top").splitlines() == [header]
