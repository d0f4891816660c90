"""From the journal into the database: once, all of it, whatever the database does meanwhile."""

from __future__ import annotations

import errno
import os
import threading
from datetime import UTC, datetime, timedelta

import pytest
from django.db import OperationalError

from metering import selectors, store
from metering.core.record import UsageRecord
from metering.journal import Journal, file_name, folders
from metering.journal_reader import UNREADABLE, JournalReader
from metering.ledger import LedgerWriter, recover
from metering.models import BudgetWindow, TouchedMinute, UsageRow
from metering.restore import read_ended
from tests.integration.metering.records import ACCOUNTS, BURST, DAILY, HOURLY, NOON, opening, record

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.store]


def windows():
    return {w.account: (w.window_start, w.window_end, w.used) for w in BudgetWindow.objects.all()}


def test_every_field_of_a_record_comes_back_out(journal, writer):
    written = UsageRecord(
        request_id="r-1",
        at=datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC),
        tenant="alice",
        application="bot",
        key="key_1",
        model="demo-chat",
        lane="standard",
        interaction="click ☃ \" ' \\ 7",
        endpoint="http://127.0.0.1:9101/v1",
        prompt_tokens=10,
        cached_tokens=4,
        completion_tokens=7,
        usage_source="engine",
        cost=24.25,
        estimated_cost=0.1 + 0.2,
        queue_ms=1.5,
        ttft_ms=None,
        e2e_ms=1234.5,
        status=499,
        finish_reason="cancelled",
        throttle_reason="",
        policy_revision=7,
        accounts=ACCOUNTS,
    )
    journal.ended(written)
    assert writer.flush(10)
    assert list(selectors.export_records()) == [written]


def test_windows_and_marks_move_with_the_records(journal, writer):
    for minutes in (0, 0, 70):
        journal.ended(record(cost=50.0, at=NOON + timedelta(minutes=minutes)))
    assert writer.flush(10)
    used = {(w.account, w.window_start.hour): w.used for w in BudgetWindow.objects.all()}
    assert used == {
        (HOURLY.account, 12): 100,
        (HOURLY.account, 13): 50,
        (DAILY.account, 15): 150,  # midnight in Tokyo
    }
    marked = set(TouchedMinute.objects.values_list("minute", flat=True))
    assert {minute.minute for minute in marked} == {0, 10}


def test_what_a_gateway_that_was_only_paused_tells_takes_the_place_of_the_guess(journal, writer):
    sure, other = record(), record()
    guess = opening(sure).abandoned()
    journal.ended(guess)
    assert writer.flush(10)
    assert windows()[HOURLY.account][2] == guess.cost
    ids = [sure.request_id, "unknown"]
    assert read_ended(ids, NOON) == {}  # nobody knows yet how it ended
    for batch in ((sure, other), (sure, guess)):  # and it is sure from then on
        for each in batch:
            journal.ended(each)
        assert writer.flush(10)
    assert {row.request_id: row for row in selectors.export_records()} == {
        sure.request_id: sure,
        other.request_id: other,
    }
    assert windows()[HOURLY.account][2] == sure.cost + other.cost
    assert {id: row.cost for id, row in read_ended(ids, NOON).items()} == {ids[0]: sure.cost}


def test_a_request_written_twice_counts_once(journal, writer):
    same = record()
    for _ in range(3):
        journal.ended(same)
    assert writer.flush(10)
    journal.ended(same)
    journal.ended(record())
    assert writer.flush(10)
    assert UsageRow.objects.count() == 2
    assert windows()[HOURLY.account][2] == 100


def test_accounts_that_policy_does_not_know_any_more_stop_nothing(journal, writer):
    journal.ended(record(accounts=("tenant:gone/hourly", HOURLY.account, BURST.account)))
    assert writer.flush(10)
    assert set(windows()) == {HOURLY.account}


def test_while_the_database_is_away_nothing_is_lost_and_nobody_waits(
    journal, budget_of, monkeypatch
):
    real, away, tried = store.save, threading.Event(), threading.Semaphore(0)
    away.set()

    def save(batch, budget_of):
        if away.is_set():
            tried.release()
            raise OperationalError("the database is away")
        return real(batch, budget_of)

    monkeypatch.setattr(store, "save", save)
    writer = LedgerWriter(journal, budget_of, interval_s=0.01)
    writer.start()
    for _ in range(500):
        journal.ended(record(cost=1.0))
    for _ in range(3):
        assert tried.acquire(timeout=10)
    assert not writer.flush(0.0)
    assert writer.failing_s > 0
    away.clear()
    assert writer.flush(20)
    assert writer.failing_s == 0
    assert UsageRow.objects.count() == 500
    assert windows()[HOURLY.account][2] == 500
    assert writer.stop(10)


@pytest.mark.parametrize("still_fits", [0, 10], ids=["nothing fits", "a part of a line"])
def test_while_the_disk_is_full_records_go_into_the_database_and_count_once(
    base, budget_of, monkeypatch, still_fits
):
    journal = Journal.start(base, "full")
    writer = LedgerWriter(journal, budget_of)
    writer.start()
    first, *more = [record() for _ in range(4)]
    journal.opened(opening(first))
    with monkeypatch.context() as full:
        full.setattr(os, "write", disk_with_room_for(still_fits))
        journal.ended(first)
        for one in more:
            journal.opened(opening(one))
            journal.ended(one)
        assert journal.unwritten_bytes
        assert writer.flush(10)
        assert UsageRow.objects.count() == 4
    journal.retry()
    journal.ended(record())
    assert writer.stop(10)
    assert UsageRow.objects.count() == 5
    assert windows()[HOURLY.account][2] == 5 * 50
    assert folders(base) == []


def test_a_stop_while_the_disk_is_full_loses_no_record(base, budget_of, monkeypatch):
    journal = Journal.start(base, "full")
    writer = LedgerWriter(journal, budget_of)
    writer.start()
    one = record()
    journal.opened(opening(one))
    monkeypatch.setattr(os, "write", disk_with_room_for(0))
    journal.ended(one)
    assert writer.stop(10)
    recover(base, budget_of)
    assert UsageRow.objects.get().usage_source == "engine"
    assert windows()[HOURLY.account][2] == 50


def disk_with_room_for(size):
    """In the place of `os.write`."""
    real, room = os.write, [size]

    def write(fd, data):
        part = data[: room[0]]
        if not part:
            raise OSError(errno.ENOSPC, "no space")
        room[0] -= len(part)
        return real(fd, part)

    return write


def test_a_transaction_that_failed_half_way_left_nothing(journal, writer, monkeypatch):
    real, failures = store._touch_minutes, [OperationalError("gone"), OperationalError("gone")]

    def touch(records):
        if failures:
            raise failures.pop()
        real(records)

    monkeypatch.setattr(store, "_touch_minutes", touch)
    journal.ended(record())
    assert writer.flush(20)
    assert not failures
    assert windows()[HOURLY.account][2] == 50


def test_a_record_that_no_database_takes_is_set_aside_and_the_others_go_in(journal, writer, base):
    journal.ended(record(request_id="before"))
    journal.ended(record(request_id="monstrous", prompt_tokens=10**30))
    journal.ended(record(request_id="negative", cost=-5.0))
    journal.ended(record(request_id="nul", interaction="a\x00b"))
    journal.ended(record(request_id="after"))
    assert writer.flush(20)
    assert set(UsageRow.objects.values_list("request_id", flat=True)) == {"before", "nul", "after"}
    aside = (base / UNREADABLE).read_text()
    assert "monstrous" in aside
    assert "negative" in aside
    assert windows()[HOURLY.account][2] == 150


def test_a_clean_stop_leaves_no_journal(base, budget_of):
    journal = Journal.start(base, "clean")
    writer = LedgerWriter(journal, budget_of)
    writer.start()
    one = record()
    journal.opened(opening(one))
    journal.ended(one)
    assert writer.stop(10)
    assert folders(base) == []
    assert UsageRow.objects.count() == 1


def test_a_stop_with_open_requests_leaves_them_to_the_next_start(base, budget_of):
    journal = Journal.start(base, "hasty")
    writer = LedgerWriter(journal, budget_of)
    writer.start()
    journal.opened(opening(record(request_id="open")))
    assert writer.stop(10)
    assert recover(base, budget_of).abandoned == 1


def test_what_a_dead_gateway_left_is_settled_once(base, budget_of):
    dead = Journal.start(base, "dead", file_bytes=1_000)
    for number in range(20):
        one = record(request_id=f"done {number}")
        dead.opened(opening(one))
        dead.ended(one)
    dead.opened(opening(record(request_id="open")))
    dead.close()

    found = recover(base, budget_of)
    assert (found.records, found.abandoned) == (20, 1)
    assert folders(base) == []
    lost = UsageRow.objects.get(request_id="open")
    assert (lost.usage_source, lost.finish_reason) == ("estimated", "error")
    assert (lost.throttle_reason, lost.status) == ("gateway_restart", 500)
    assert (lost.prompt_tokens, lost.completion_tokens, lost.cost) == (11, 22, 55)
    assert windows()[HOURLY.account][2] == 20 * 50 + 55
    assert recover(base, budget_of).records == 0


def test_a_folder_that_cannot_be_read_stops_no_start_and_is_kept(base, budget_of, monkeypatch):
    """As of a gateway that another user ran."""
    for name in ("another", "own"):
        dead = Journal.start(base, name)
        dead.ended(record(request_id=name))
        dead.close()
    real = os.open

    def refuses(path, *given, **more):
        if "another-" in str(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, *given, **more)

    with monkeypatch.context() as another:
        another.setattr(os, "open", refuses)
        assert recover(base, budget_of).records == 1
    assert [folder.name.split("-")[0] for folder in folders(base)] == ["another"]
    assert recover(base, budget_of).records == 1
    assert UsageRow.objects.count() == 2


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (b'"prompt_tokens":11', b'"prompt_tokens":"x"'),
        (b'"at":"20', b'"at":"2x'),
        (b'"alice"', b'"al\xffe"'),
    ],
)
def test_an_opening_that_is_damaged_past_its_id_stops_no_start(base, budget_of, good, bad):
    dead = Journal.start(base, "dead")
    dead.opened(opening(record(request_id="damaged")))
    dead.opened(opening(record(request_id="whole")))
    dead.close()
    path = dead.folder / file_name(1)
    first, rest = path.read_bytes().split(b"\n", 1)
    assert good in first
    path.write_bytes(first.replace(good, bad) + b"\n" + rest)

    assert recover(base, budget_of).abandoned == 1
    assert UsageRow.objects.get().request_id == "whole"
    assert bad in (base / UNREADABLE).read_bytes()
    assert folders(base) == []


def test_recovery_that_was_cut_off_begins_again_and_doubles_nothing(base, budget_of):
    dead = Journal.start(base, "dead")
    for _ in range(5):
        dead.ended(record())
    dead.close()
    store.save(JournalReader(dead.folder).read(), budget_of)  # and then the power went
    assert recover(base, budget_of).records == 0
    assert windows()[HOURLY.account][2] == 250


def test_an_open_request_whose_end_was_saved_before_the_crash_is_not_settled_again(base, budget_of):
    """The file with its end may be deleted while the one it was opened in is still kept."""
    dead = Journal.start(base, "dead")
    one = record(cost=7.0)
    dead.opened(opening(one))
    dead.close()
    other = Journal.start(base, "other")
    other.ended(one)
    store.save(JournalReader(other.folder).read(), budget_of)
    other.close()
    recover(base, budget_of)
    assert UsageRow.objects.get().cost == 7
    assert windows()[HOURLY.account][2] == 7


def test_recovery_leaves_a_living_gateways_journal_alone(base, journal, budget_of):
    journal.opened(opening(record()))
    assert recover(base, budget_of).abandoned == 0
    assert journal.folder in folders(base)
