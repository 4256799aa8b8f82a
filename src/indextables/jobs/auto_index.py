"""Automatic indexing: a commit takes XRefs for its new splits along.

The splits are stored and the actions known; before they are committed, the XRefs of the table that
the commit will leave behind are planned in tiers (`crossreference_plan`) and built. They are in the
same commit as the data, so no reader sees one without the other. A commit that lost a version is
made again from the newest snapshot: a replacement that no longer fits is left out then, the data
are committed all the same.

Indexing serves the commit and never harms it. It waits for `xref.autoIndex.timeoutMs` at the most;
a build that is not ready by then is left behind and deletes what it stored when it ends. An error
is logged. The next write finds the same splits uncovered and tries again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import chain

from indextables import config as keys
from indextables.config import Config, known_keys
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
from indextables.jobs.crossreference_plan import CrossReferencePlan, plan_automatic
from indextables.log.actions import Action, Add, AddXRef, Remove, RemoveXRef
from indextables.log.commit import Committed
from indextables.log.crossreferences import cover_of
from indextables.log.snapshot import Snapshot, VersionActions, empty_snapshot
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog
from indextables.runner import Runner

logger = logging.getLogger(__name__)


def commit_indexed(
    log: TransactionLog,
    transaction: Transaction,
    *,
    config: Config | None = None,
    runner: Runner | None = None,
) -> Committed:
    """Commit a change of data, together with XRefs for the splits that it adds if that is due."""
    made = _made(log, transaction, config or log.config, runner)
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
    log: TransactionLog, transaction: Transaction, config: Config, runner: Runner | None
) -> list[Made]:
    """The XRefs that are ready in time; none if anything is wrong."""
    try:
        first = transaction.operation is Operation.CREATE
        newest = empty_snapshot(log.store.uri) if first else log.snapshot()
        config = config.over(known_keys(newest.metadata.configuration))
        if not (config[keys.XREF_AUTO_INDEX] and may_index(newest, config)):
            return []
        wanted = _actions_of(transaction)(newest)
        if not _changes_files(wanted):
            return []
        after = _after(newest, wanted, log.now_ms())
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
    if not any(one.builds for one in plan.replacements):
        return [Made(one, (), frozenset(after.xrefs)) for one in plan.replacements]

    def build() -> list[Made]:
        tasks = tasks_for(
            log.store, after, chain.from_iterable(r.builds for r in plan.replacements), config
        )
        results = (runner or local_runner(config)).map(run_build, tasks)
        made, errors = made_from(
            plan, results, after, store=log.store, created_ms=log.now_ms(), config=config
        )
        for error in errors:
            logger.warning("An XRef of %s was not built: %s", log.store.uri, error)
        return made

    budget_ms = config[keys.XREF_AUTO_INDEX_TIMEOUT]
    pool = ThreadPoolExecutor(1, thread_name_prefix="indextables-xref")
    try:
        future = pool.submit(build)
        try:
            return future.result(timeout=budget_ms / 1000)
        except TimeoutError:
            # Now or when it ends, whichever is later; there is no moment in between.
            future.add_done_callback(lambda done: _discard_late(log, done))
            logger.warning(
                "%s is committed without new XRefs: they took more than %d ms. Raise %s, or run "
                "INDEX CROSSREFERENCES.",
                log.store.uri,
                budget_ms,
                keys.XREF_AUTO_INDEX_TIMEOUT.name,
            )
            return []
    finally:
        pool.shutdown(wait=False)


def _discard_late(log: TransactionLog, done: Future[list[Made]]) -> None:
    if done.exception() is None:
        discard_made(log.store, done.result())


def _actions_of(transaction: Transaction) -> Callable[[Snapshot], Sequence[Action]]:
    return transaction.transform or (lambda _newest: transaction.actions)


def _changes_files(actions: Sequence[Action]) -> bool:
    return any(isinstance(a, Add | Remove) for a in actions)


def _after(snapshot: Snapshot, actions: Sequence[Action], now_ms: int) -> Snapshot:
    """The files and XRefs after a commit of these actions."""
    kinds = (Add, Remove, AddXRef, RemoveXRef)
    files = [a for a in actions if isinstance(a, kinds)]
    return snapshot.advance([VersionActions(snapshot.version + 1, files, now_ms)])
