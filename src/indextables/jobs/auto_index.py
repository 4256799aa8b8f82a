"""Automatic indexing: a commit takes XRefs for its new splits along.

The splits are stored and the actions known; before they are committed, the XRefs of the table that
the commit will leave behind are planned in tiers (`crossreference_plan`) and built. They are in the
same commit as the data, so no reader sees one without the other. A commit that lost a version is
made again from the newest snapshot: a replacement that no longer fits is left out then, the data
are committed all the same.

Indexing serves the commit and never harms it. It waits for `xref.autoIndex.timeoutMs` at the most.
What is ready by then is committed; a build that is not is left behind and deletes what it stored
when it ends. An error is logged. The next write finds the rest uncovered and goes on with it.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace

from indextables import config as keys
from indextables.config import Config
from indextables.errors import CommitStateUnknownError
from indextables.jobs.crossreference_build import (
    Made,
    discard_made,
    local_runner,
    made_from,
    may_index,
    run_build,
    tasks_for,
)
from indextables.jobs.crossreference_plan import CrossReferencePlan, Replacement, plan_automatic
from indextables.log.actions import Action, Add, AddXRef, Metadata, Remove, RemoveXRef
from indextables.log.commit import Committed
from indextables.log.crossreferences import cover_of
from indextables.log.snapshot import Snapshot, VersionActions, empty_snapshot
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog
from indextables.runner import Runner

logger = logging.getLogger(__name__)

_READING_SHARE = 0.5
"""Of the time that is left; the other half is for writing and storing what was read."""
_MOST_AT_ONCE = 32
"""Jobs that a cluster is given at once."""


def commit_indexed(
    log: TransactionLog,
    transaction: Transaction,
    *,
    settings: Config | None = None,
    runner: Runner | None = None,
) -> Committed:
    """Commit a change of data, together with XRefs for the splits that it adds if that is due."""
    made = _made(log, transaction, settings or log.config, runner)
    if not made:
        return log.commit(transaction)
    actions_of = _actions_of(transaction)

    def with_xrefs(newest: Snapshot) -> Sequence[Action]:
        wanted = actions_of(newest)
        if not _changes_files(wanted):
            return wanted  # nothing is left to do, and an XRef alone is no reason to commit
        after = _after(newest, wanted, log.now_ms())
        added: list[Action] = []
        for one in made:
            actions = one.actions_on(after, timestamp=log.now_ms())
            if actions is not None:
                after = _after(after, actions, log.now_ms())
                added += actions
        return [*wanted, *added]

    try:
        committed = log.commit(replace(transaction, transform=with_xrefs))
    except CommitStateUnknownError:
        raise  # the commit may be there, and then it names them
    except BaseException:
        discard_made(log.store, made)
        raise
    live = committed.snapshot.xrefs
    discard_made(log.store, [m for m in made if not all(x.path in live for x in m.xrefs)])
    return committed


def _made(
    log: TransactionLog, transaction: Transaction, settings: Config, runner: Runner | None
) -> list[Made]:
    """The XRefs that are ready in time; none if anything is wrong."""
    try:
        first = transaction.operation is Operation.CREATE
        newest = empty_snapshot(log.store.uri) if first else log.snapshot()
        wanted = _actions_of(transaction)(newest)
        if not _changes_files(wanted):
            return []
        after = _after(newest, wanted, log.now_ms())
        config = settings.over_properties(after.metadata.configuration)
        if not (config[keys.XREF_AUTO_INDEX] and may_index(newest, config)):
            return []
        plan = plan_automatic(
            cover_of(after),
            max_splits=config[keys.XREF_MAX_SOURCE_SPLITS],
            min_splits=config[keys.XREF_MIN_SPLITS_TO_TRIGGER],
            rebuild_stale=config[keys.XREF_REBUILD_ON_SOURCE_CHANGE],
        )
        return _built_in_time(log, after, plan, config, runner)
    except Exception as error:
        # Whatever it is, the data can be committed; if they cannot, the commit says so itself.
        logger.warning("%s is committed without new XRefs: %s", log.store.uri, error)
        return []


def _built_in_time(
    log: TransactionLog,
    after: Snapshot,
    plan: CrossReferencePlan,
    config: Config,
    runner: Runner | None,
) -> list[Made]:
    """The replacements that are ready in time. A build that would be late covers what it has read
    after a share of the time, so every commit makes some progress.
    """
    known = frozenset(after.xrefs)
    removals = [Made(one, (), known) for one in plan.replacements if not one.builds]
    due = [one for one in plan.replacements if one.builds]
    if not due:
        return removals
    budget_s = config[keys.XREF_AUTO_INDEX_TIMEOUT] / 1000
    deadline = time.monotonic() + budget_s
    where = runner or local_runner(config)

    def build(one: Replacement) -> Made | None:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return None
        tasks = tasks_for(log.store, after, one.builds, config, reading_s=left_s * _READING_SHARE)
        made, errors = made_from(
            CrossReferencePlan((one,)),
            where.map(run_build, tasks),
            after,
            store=log.store,
            created_ms=log.now_ms(),
            config=config,
        )
        for error in errors:
            logger.warning("An XRef of %s was not built: %s", log.store.uri, error)
        return made[0] if made else None

    at_once = config[keys.XREF_BUILD_PARALLELISM] or (os.cpu_count() if runner is None else None)
    pool = ThreadPoolExecutor(
        min(len(due), at_once or _MOST_AT_ONCE), thread_name_prefix="indextables-xref"
    )
    futures = [pool.submit(build, one) for one in due]
    wait(futures, timeout=budget_s)
    pool.shutdown(wait=False, cancel_futures=True)
    late = [future for future in futures if not future.done()]
    for future in late:
        # Now or when it ends, whichever is later; there is no moment in between.
        future.add_done_callback(lambda done: _discard_late(log, done))
    ready: list[Made] = []
    for future in futures:
        if future in late or future.cancelled():
            continue
        if error := future.exception():
            logger.warning("An XRef of %s was not built: %s", log.store.uri, error)
        elif made := future.result():
            ready.append(made)
    _report_late(log, due, ready, late, config)
    return ready + removals


def _report_late(
    log: TransactionLog,
    due: Sequence[Replacement],
    ready: Sequence[Made],
    late: Sequence[Future[Made | None]],
    config: Config,
) -> None:
    wanted = sum(len(build.splits) for one in due for build in one.builds)
    covered = sum(xref.source_split_count for made in ready for xref in made.xrefs)
    if covered < wanted and (late or covered):
        logger.warning(
            "%s is committed with XRefs for %d of %d splits: the others took more than %d ms. The "
            "next write goes on; or raise %s, or run INDEX CROSSREFERENCES.",
            log.store.uri, covered, wanted, config[keys.XREF_AUTO_INDEX_TIMEOUT],
            keys.XREF_AUTO_INDEX_TIMEOUT.name,
        )  # fmt: skip


def _discard_late(log: TransactionLog, done: Future[Made | None]) -> None:
    if not done.cancelled() and done.exception() is None and (made := done.result()):
        discard_made(log.store, [made])


def _actions_of(transaction: Transaction) -> Callable[[Snapshot], Sequence[Action]]:
    return transaction.transform or (lambda _newest: transaction.actions)


def _changes_files(actions: Sequence[Action]) -> bool:
    return any(isinstance(a, Add | Remove) for a in actions)


def _after(snapshot: Snapshot, actions: Sequence[Action], now_ms: int) -> Snapshot:
    """The table after a commit of these actions."""
    kinds = (Add, Remove, AddXRef, RemoveXRef, Metadata)
    files = [a for a in actions if isinstance(a, kinds)]
    return snapshot.advance([VersionActions(snapshot.version + 1, files, now_ms)])
