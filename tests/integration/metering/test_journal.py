"""The journal's files: the written is read, the done is deleted, the torn is ignored."""

from __future__ import annotations

import errno
import os

import pytest

from metering import journal_reader
from metering.journal import Journal, claim, file_name, file_numbers, folders
from metering.journal_reader import UNREADABLE, JournalReader
from tests.integration.metering.records import opening, record


def read_ids(reader):
    """All that is there, as one who saves it."""
    ids = []
    while batch := reader.read():
        ids += [ended.record.request_id for ended in batch]
        reader.commit()
    reader.commit()
    return ids


@pytest.fixture
def small(base):
    """A journal whose files hold a few lines only."""
    journal = Journal.start(base, "small", file_bytes=2_000)
    yield journal
    journal.close()


def test_a_record_is_read_as_it_was_written(journal):
    written = record(interaction='odd "text" ☃', ttft_ms=1.25)
    journal.ended(written)
    (ended,) = JournalReader(journal.folder).read()
    assert ended.record == written


def test_a_batch_comes_again_until_it_is_committed(journal):
    reader = JournalReader(journal.folder)
    journal.ended(record(request_id="a"))
    assert [e.record.request_id for e in reader.read()] == ["a"]
    journal.ended(record(request_id="b"))
    assert [e.record.request_id for e in reader.read()] == ["a"]
    reader.commit()
    assert [e.record.request_id for e in reader.read()] == ["b"]


def test_reading_goes_on_over_file_ends_in_order(small):
    written = [record() for _ in range(50)]
    for one in written:
        small.ended(one)
    assert len(file_numbers(small.folder)) > 5
    assert read_ids(JournalReader(small.folder)) == [one.request_id for one in written]


def test_files_go_when_all_in_them_is_saved_and_nothing_in_them_is_open(small):
    reader = JournalReader(small.folder)
    long_running = record(request_id="long")
    small.opened(opening(long_running))
    for _ in range(50):
        one = record()
        small.opened(opening(one))
        small.ended(one)
    read_ids(reader)
    kept = file_numbers(small.folder)
    assert kept[0] == 1  # "long" was opened in it
    assert len(kept) == 2
    small.ended(long_running)
    read_ids(reader)
    assert len(file_numbers(small.folder)) == 1
    assert reader.open_requests == 0


def test_a_reader_that_starts_late_begins_with_the_oldest_file_left(small):
    for _ in range(30):
        small.ended(record())
    read_ids(JournalReader(small.folder))
    small.ended(record(request_id="late"))
    assert "late" in read_ids(JournalReader(small.folder))


def test_a_last_line_without_its_end_is_no_line(journal):
    journal.ended(record(request_id="whole"))
    path = journal.folder / file_name(1)
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole + whole[:cut])
        assert read_ids(JournalReader(journal.folder)) == ["whole"]


def test_a_damaged_line_is_set_aside_and_the_rest_goes_on(journal, base):
    journal.ended(record(request_id="before"))
    with (journal.folder / file_name(1)).open("ab") as file:
        file.write(b'{"ended":{"request_id": 7\x00}}\nnot json\n')
    journal.ended(record(request_id="after"))
    assert read_ids(JournalReader(journal.folder)) == ["before", "after"]
    assert (base / UNREADABLE).read_bytes().count(b"\n") == 2


def test_a_damaged_line_that_cannot_be_set_aside_takes_no_record_with_it(
    journal, base, monkeypatch
):
    """The disk is full: the reader comes again, and finds what it found."""
    reader = JournalReader(journal.folder)
    journal.ended(record(request_id="before"))
    with (journal.folder / file_name(1)).open("ab") as file:
        file.write(b"not json\n")
    journal.ended(record(request_id="after"))
    with monkeypatch.context() as full:
        full.setattr(journal_reader, "set_aside", no_space)
        with pytest.raises(OSError, match="no space"):
            reader.read()
    assert read_ids(reader) == ["before", "after"]
    assert (base / UNREADABLE).read_bytes() == b"not json\n"


def no_space(base, line):
    raise OSError(errno.ENOSPC, "no space")


def test_a_full_disk_loses_nothing_and_breaks_no_line(journal, monkeypatch):
    real, full = os.write, [True]

    def write(fd, data):
        if full[0]:
            if len(data) > 10:
                return real(fd, data[:10])  # what still fits
            raise OSError(errno.ENOSPC, "no space")
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    journal.ended(record(request_id="a"))
    monkeypatch.setattr(os, "write", lambda fd, data: (_ for _ in ()).throw(OSError(28, "full")))
    journal.ended(record(request_id="b"))
    assert journal.unwritten_bytes > 0
    monkeypatch.setattr(os, "write", real)
    journal.retry()
    assert journal.unwritten_bytes == 0
    assert read_ids(JournalReader(journal.folder)) == ["a", "b"]


def test_two_processes_never_share_a_folder(base, journal):
    other = Journal.start(base, "gateway:1")
    assert other.folder != journal.folder
    other.close()


def test_only_a_folder_whose_process_is_gone_can_be_claimed(base, journal):
    dead = Journal.start(base, "dead")
    dead.close()
    claimed = {}
    for folder in folders(base):
        with claim(folder) as free:
            claimed[folder] = free
    assert claimed == {journal.folder: False, dead.folder: True}


def test_after_it_is_closed_nothing_is_written_into_a_foreign_file(base, tmp_path):
    journal = Journal.start(base, "closed")
    journal.close()
    with (tmp_path / "foreign").open("wb") as foreign:
        journal.ended(record())
        foreign.flush()
    assert (tmp_path / "foreign").read_bytes() == b""
    assert journal.unwritten_bytes > 0


def test_a_synced_journal_is_on_the_disk(journal):
    journal.ended(record())
    journal.sync()
    assert journal.position() == (1, (journal.folder / file_name(1)).stat().st_size)
