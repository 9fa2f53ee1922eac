"""The file of a ledger: what is written once stays written, and what was changed is found."""

import copy
import json
import math
import multiprocessing
import os
import pickle
import signal
import threading
import time
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path

import numpy as np
import pytest
from dp_accounting.dp_event import RepeatAndSelectDpEvent
from filelock import FileLock, Timeout
from helpers import blobs, calibrate, charged

from dpsubspace import DPSGDClassifier, PrivacyError, PrivacyLedger, PrivacyWarning, private_mean
from dpsubspace._core.accounting.events import (
    bounded_range,
    composed,
    gaussian,
    laplace,
    sampled_gaussian,
)
from dpsubspace.budget._journal import About, Journal
from dpsubspace.exceptions import PrivacyBudgetError

ZERO_OUT = {"neighboring_relation": "zero_out"}
AT = {"delta": 1e-5, **ZERO_OUT}


def ledger(epsilon=1.0, **options):
    return PrivacyLedger(epsilon=epsilon, delta=1e-5, **options)


def read(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def chained(path, records):
    """Write `records` with hashes that fit: what is wrong with them must be found otherwise."""
    path.unlink(missing_ok=True)
    Journal(path).create(records)


def filled(**options):
    book = ledger(2.0, pure_epsilon=0.2, max_failures=3, **options)
    book.charge(laplace(0.1, **ZERO_OUT), "pure", **ZERO_OUT)
    book.charge(gaussian(10.0, 3), "fit", **ZERO_OUT)
    book.charge(sampled_gaussian(3.0, 0.1, 20), "batches", **ZERO_OUT)
    book.charge(composed([bounded_range(0.05, 8), gaussian(20.0)]), "both", **ZERO_OUT)
    book.charge(RepeatAndSelectDpEvent(gaussian(5000.0), 2.0, math.inf), "search", **ZERO_OUT)
    return book


@pytest.fixture(scope="module")
def records_of_filled(tmp_path_factory):
    """Records of the file of a ledger, which takes a while to fill."""
    path = tmp_path_factory.mktemp("filled") / "ledger"
    filled(path=path)
    return read(path)


def test_a_copy_holds_all_of_a_ledger(tmp_path):
    book = filled()
    book.save(tmp_path / "ledger")
    again = PrivacyLedger.load(tmp_path / "ledger")
    assert again.entries == book.entries and again._terms == book._terms
    assert again._state.split == book._state.split and again.remaining() == book.remaining()
    assert (str(again), again.details(), again.epsilon(1e-7)) == (
        str(book),
        book.details(),
        book.epsilon(1e-7),
    )
    with pytest.raises(ValueError, match="keeps this ledger"):
        again.save(tmp_path / "ledger")


def test_every_charge_is_in_the_file_at_once(tmp_path):
    book = filled(path=tmp_path / "ledger")
    again = PrivacyLedger.load(tmp_path / "ledger")
    assert again.entries == book.entries and len(book) == 5
    again.charge(gaussian(50.0), "elsewhere", **ZERO_OUT)
    assert len(book) == 6 and book.entries[-1].label == "elsewhere"
    assert book.epsilon() == again.epsilon() and book.path == tmp_path / "ledger"
    third = ledger(2.0, pure_epsilon=0.2, max_failures=3, path=tmp_path / "ledger")
    assert third.entries == book.entries
    with pytest.raises(ValueError, match=r"`epsilon` of the ledger in .* is 2.0, got 3.0"):
        ledger(3.0, path=tmp_path / "ledger")
    with pytest.raises(FileNotFoundError, match="folder"):
        ledger(path=tmp_path / "none" / "ledger")
    with pytest.raises(FileNotFoundError, match="no file"):
        PrivacyLedger.load(tmp_path / "none")


def test_a_fit_of_a_ledger_with_a_file_changes_and_drops_its_entry(tmp_path):
    book = ledger(2.0, path=tmp_path / "ledger", allow_seeded=True)
    X, y = blobs(n=300)
    book.fit(DPSGDClassifier(epsilon=0.5, random_state=0), X, y)
    with pytest.raises(ValueError, match="NaN"):
        book.fit(DPSGDClassifier(epsilon=0.5), np.full_like(X, np.nan), y)
    assert book.failures == 1 and len(book) == 1
    again = PrivacyLedger.load(tmp_path / "ledger")
    assert (charged(again), again.failures) == (charged(book), 1)
    assert [record["type"] for record in read(tmp_path / "ledger")] == [
        "ledger", "charge", "seen", "charge", "failure", "drop",
    ]  # fmt: skip


def test_accounts_beside_the_plan_go_on_in_a_file(tmp_path):
    book = ledger(1.5, path=tmp_path / "ledger")
    fit = gaussian(calibrate(gaussian, epsilon=1.0, delta=1e-5, **ZERO_OUT))
    book.charge(fit, "fit", **ZERO_OUT)
    again = PrivacyLedger.load(tmp_path / "ledger")
    again.charge(laplace(0.3, **ZERO_OUT), "score", **ZERO_OUT)
    assert again._state.split == book._state.split and book.epsilon() == pytest.approx(1.3)
    with pytest.raises(PrivacyBudgetError, match=r"epsilon=0\.15"):
        book.charge(laplace(0.2, **ZERO_OUT), "score", **ZERO_OUT)
    ledger(1.5, path=tmp_path / "ledger").charge(laplace(0.14, **ZERO_OUT), **ZERO_OUT)
    with pytest.raises(ValueError, match=r"`pure_epsilon` of the ledger in .* is 'auto', got 0.5"):
        ledger(1.5, path=tmp_path / "ledger", pure_epsilon=0.5)
    records = read(tmp_path / "ledger")
    records[2]["charge"]["sum_epsilon"] = 0.1
    chained(tmp_path / "other", records)
    with pytest.raises(PrivacyError, match="charged less than what it costs"):
        PrivacyLedger.load(tmp_path / "other")


def test_a_file_from_before_there_were_accounts_goes_on_with_its_plan(tmp_path):
    book = filled(path=tmp_path / "ledger")
    records = read(tmp_path / "ledger")
    for record in records:
        for fields in (record, record.get("plan") or {}, record.get("charge") or {}):
            for name in ("aside", "first", "before", "sum_sq_mu", "sum_epsilon"):
                fields.pop(name, None)
    chained(tmp_path / "old", records)
    again = PrivacyLedger.load(tmp_path / "old")
    assert (again.epsilon(), again.remaining()) == (book.epsilon(), book.remaining())
    again.charge(laplace(0.05, **ZERO_OUT), "pure", **ZERO_OUT)
    with pytest.raises(PrivacyBudgetError):
        again.charge(laplace(0.5, **ZERO_OUT), "pure", **ZERO_OUT)
    assert len(PrivacyLedger.load(tmp_path / "old")) == len(book) + 1


def test_a_failed_copy_keeps_the_old_one(tmp_path, monkeypatch):
    book = ledger()
    book.charge(gaussian(10.0), "first", **ZERO_OUT)
    book.save(tmp_path / "ledger")
    spent = book.epsilon()
    book.charge(gaussian(10.0), "second", **ZERO_OUT)

    def full(handle):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space"):
            book.save(tmp_path / "ledger")
    assert PrivacyLedger.load(tmp_path / "ledger").epsilon() == spent


def test_a_charge_that_cannot_be_written_releases_nothing(tmp_path, monkeypatch):
    book = ledger(path=tmp_path / "ledger")
    before = (tmp_path / "ledger").read_bytes()

    def full(handle):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space"):
            book.run(private_mean, blobs()[0], data_norm=1.0, epsilon=0.5)
    assert (tmp_path / "ledger").read_bytes() == before
    # It failed before it released anything, which is counted as any such failure.
    assert len(book) == 0


def test_writing_a_record_twice_changes_nothing(tmp_path):
    book = ledger(path=tmp_path / "ledger")
    book.charge(gaussian(10.0), "once", **ZERO_OUT)
    record = read(tmp_path / "ledger")[-1]
    for journal in (book._state.journal, Journal(tmp_path / "ledger")):
        with journal.held():
            list(journal.news())
            assert not journal.append(record)
    assert len(read(tmp_path / "ledger")) == 2 and len(book) == 1


# Damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [1, 40, -2])
def test_half_a_record_at_the_end_was_released_by_nobody(tmp_path, kept):
    book = ledger(path=tmp_path / "ledger")
    book.charge(gaussian(10.0), "first", **ZERO_OUT)
    whole = (tmp_path / "ledger").read_bytes()
    book.charge(gaussian(10.0), "second", **ZERO_OUT)
    line = (tmp_path / "ledger").read_bytes()[len(whole) :]
    (tmp_path / "ledger").write_bytes(whole + line[:kept])
    with pytest.warns(PrivacyWarning, match="half a record"):
        again = PrivacyLedger.load(tmp_path / "ledger")
    assert [entry.label for entry in again.entries] == ["first"]
    assert (tmp_path / "ledger").read_bytes() == whole
    again.charge(gaussian(10.0), "third", **ZERO_OUT)
    assert len(PrivacyLedger.load(tmp_path / "ledger")) == 2


def test_a_last_line_that_lost_its_newline_counts(tmp_path):
    path = tmp_path / "ledger"
    book = ledger(path=path)
    book.charge(gaussian(10.0), "first", **ZERO_OUT)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])  # as an editor leaves it that strips the end of a file
    with pytest.warns(PrivacyWarning, match="the newline was put back"):
        again = PrivacyLedger.load(path)
    assert [entry.label for entry in again.entries] == ["first"]
    assert path.read_bytes() == whole
    for each in (book, again):  # who had read the line before, and who had not
        each.charge(gaussian(10.0), **ZERO_OUT)
    assert len(PrivacyLedger.load(path)) == 3
    path.write_bytes(path.read_bytes()[:-1])  # of a line that `again` wrote itself
    with pytest.warns(PrivacyWarning, match="the newline was put back"):
        again.charge(gaussian(10.0), **ZERO_OUT)
    assert len(PrivacyLedger.load(path)) == 4


@pytest.mark.parametrize(
    "rest", [b" ", b"}", b"\x00x", "changed", "whole and more"], ids=lambda rest: repr(rest)
)
def test_what_is_no_half_of_a_record_is_not_taken_off(tmp_path, rest):
    path = tmp_path / "ledger"
    book = ledger(path=path)
    before = path.read_bytes()
    book.charge(gaussian(10.0), "charged", **ZERO_OUT)
    line = path.read_bytes()[len(before) :]
    rest = {
        "changed": line[:-1].replace(b"10.0", b"90.0"),
        "whole and more": line[:-1] + b"K",
    }.get(rest, rest)
    path.write_bytes(before + rest)
    with pytest.raises(PrivacyError, match="cannot be read as a PrivacyLedger"):
        PrivacyLedger.load(path)
    assert path.read_bytes() == before + rest


def test_zeros_that_a_crash_of_the_machine_left_are_taken_off(tmp_path):
    path = tmp_path / "ledger"
    book = ledger(path=path)
    before = path.read_bytes()
    book.charge(gaussian(10.0), **ZERO_OUT)
    line = path.read_bytes()[len(before) :]
    for rest in (bytes(300), line[:100] + bytes(50)):
        path.write_bytes(before + rest)
        with pytest.warns(PrivacyWarning, match="half a record"):
            assert len(PrivacyLedger.load(path)) == 0
        assert path.read_bytes() == before


def test_a_refused_record_is_refused_again(tmp_path):
    """Who goes on after the error must not go on without the record."""
    book, other = (ledger(path=tmp_path / "ledger") for _ in range(2))
    other.charge(gaussian(10.0), **ZERO_OUT)
    with book._state.journal.held():
        journal = Journal(tmp_path / "ledger")
        list(journal.news())
        journal.append({"id": "later", "type": "of a later version"})
    for each in (book, book, other, other):
        with pytest.raises(PrivacyError, match="of a later version"):
            each.charge(gaussian(10.0), **ZERO_OUT)


@pytest.mark.parametrize("how", ["equal", "replaced"])
def test_another_file_is_noticed_before_the_next_release(tmp_path, how):
    path = tmp_path / "ledger"
    book = ledger(path=path)
    book.charge(gaussian(10.0), "one", **ZERO_OUT)
    other = ledger(path=tmp_path / "other")
    other.charge(gaussian(10.0), "two", **ZERO_OUT)
    text = (tmp_path / "other").read_bytes()
    assert len(text) == len(path.read_bytes())
    if how == "equal":
        path.write_bytes(text)
    else:
        os.replace(tmp_path / "other", path)
    with pytest.raises(PrivacyError, match="not what was read there"):
        book.run(private_mean, np.zeros((50, 1)), data_norm=1.0, epsilon=0.1)
    assert path.read_bytes() == text


def test_a_file_that_is_swapped_while_it_is_written_pays_for_nothing(tmp_path, monkeypatch):
    path = tmp_path / "ledger"
    book = ledger(path=path)
    copy = tmp_path / "copy"
    copy.write_bytes(path.read_bytes())
    fsync = os.fsync

    def swap(handle):
        fsync(handle)
        os.replace(copy, path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", swap)
        with pytest.raises(PrivacyError, match="put in its place"):
            book.charge(gaussian(10.0), **ZERO_OUT)
    book.charge(gaussian(10.0), **ZERO_OUT)  # the copy says what is true
    assert len(PrivacyLedger.load(path)) == 1


# Names of one file ------------------------------------------------------------------------------


def test_links_have_the_lock_of_their_file(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    path, link = tmp_path / "ledger", tmp_path / "elsewhere" / "link"
    book = ledger(path=path)
    link.symlink_to(path)
    again = ledger(path=link)
    assert again._state.journal.path == book._state.journal.path and again.path == book.path
    again.charge(gaussian(10.0), "by the link", **ZERO_OUT)
    assert [entry.label for entry in book.entries] == ["by the link"]
    assert link.is_symlink() and [p.name for p in link.parent.iterdir()] == ["link"]
    with pytest.raises(ValueError, match="keeps this ledger"):
        book.save(link)


def test_a_link_to_nothing_is_refused_and_stays(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "unmounted")
    for opened in (lambda: ledger(path=link), lambda: ledger().save(link)):
        with pytest.raises(FileNotFoundError, match=r"is a link to .*unmounted.* does not exist"):
            opened()
    assert link.is_symlink() and not (tmp_path / "unmounted").exists()


def test_a_file_with_two_names_is_refused_until_it_has_one(tmp_path):
    path, other = tmp_path / "ledger", tmp_path / "other"
    book = ledger(path=path)
    os.link(path, other)
    for charged_by in (lambda: book, lambda: PrivacyLedger.load(other)):
        with pytest.raises(PrivacyError, match=r"2 names \(hard links\)"):
            charged_by().charge(gaussian(10.0), **ZERO_OUT)
    other.unlink()
    book.charge(gaussian(10.0), **ZERO_OUT)
    assert len(PrivacyLedger.load(path)) == 1


@pytest.mark.skipif(os.name != "posix", reason="a file itself is locked by fcntl")
def test_writers_whose_locks_are_apart_do_not_write_over_each_other(tmp_path, monkeypatch):
    """As where somebody deleted the lock, or a container sees the file in another folder."""
    path = tmp_path / "ledger"
    monkeypatch.setattr(Journal, "held", nullcontext)
    first, second = ledger(path=path), ledger(path=path)
    with first._state.held():
        second.charge(gaussian(10.0), "second", **ZERO_OUT)
        with pytest.raises(PrivacyError, match="does not use its lock"):
            first._state.add("first", gaussian(10.0), About())
    first.charge(gaussian(10.0), "first", **ZERO_OUT)
    assert [entry.label for entry in PrivacyLedger.load(path).entries] == ["second", "first"]


@pytest.mark.parametrize("damage", ["byte", "removed", "moved", "repeated", "short"])
def test_a_damaged_file_is_refused_and_kept(tmp_path, damage):
    book = filled(path=tmp_path / "ledger")
    lines = (tmp_path / "ledger").read_bytes().splitlines(keepends=True)
    if damage == "byte":
        lines[2] = lines[2].replace(b"10.0", b"90.0")
    elif damage == "removed":
        del lines[2]
    elif damage == "moved":
        lines[2], lines[3] = lines[3], lines[2]
    elif damage == "repeated":
        lines.append(lines[-1])
    elif damage == "short":
        lines = lines[:2]
    found = b"".join(lines)
    (tmp_path / "ledger").write_bytes(found)
    if damage != "short":  # a chain cannot tell that its end was cut off
        with pytest.raises(PrivacyError, match="cannot be read as a PrivacyLedger"):
            PrivacyLedger.load(tmp_path / "ledger")
    if damage in ("repeated", "short"):  # who has read it so far notices what comes after
        with pytest.raises(PrivacyError, match="cannot be read as a PrivacyLedger"):
            book.charge(gaussian(50.0), **ZERO_OUT)
    assert (tmp_path / "ledger").read_bytes() == found


@pytest.mark.parametrize(
    "changed",
    [
        (0, "format", "other"),
        (0, "version", 1),
        (0, "type", "open"),
        (0, "unit", KeyError),
        (0, "more", 1),
        (0, "epsilon", "inf"),
        (0, "epsilon", -2.0),
        (0, "delta", True),
        (0, "delta", 1.5),
        (0, "failures", -1),
        (0, "failures", 1.0),
        (0, "allow_seeded", 0),
        (0, "neighboring_relation", "other"),
        (0, "neighboring_relation", "replace_one"),
        (0, "pure_epsilon", 0.5),
        (1, "type", "other"),
        (1, "type", "change"),
        (1, "label", 5),
        (1, "date", None),
        (1, "event", {"type": "NoSuchEvent"}),
        (1, "event", "noise_multiplier", -1.0),
        (1, "event", "noise_multiplier", "inf"),
        (1, "event", "type", "SelfComposedDpEvent"),
        (1, "charge", "epsilon", 0.05),
        (1, "charge", "epsilon", -0.1),
        (1, "n_samples", -1),
        (1, "own_epsilon", 0.01),
        (1, "unit", "person"),
        (1, "neighboring_relation", "replace_one"),
        (2, "charge", "sq_mu", 0.0299),
        (2, "event", "count", 2.5),
        (2, "event", "event", 3),
        (3, "charge", "sq_mu", 0.0),
        (3, "charge", "slack", 0.0),
        (3, "event", "event", "sampling_probability", 1.5),
        (4, "event", "events", [3]),
        (4, "charge", {}),
        (5, "event", "mean", 100.0),
        (5, "plan", None),
        (5, "plan", "epsilon", 0.9),
        (5, "plan", "epsilon", 0.0),
        (5, "plan", "closed", 1),
    ],
    ids=str,
)
def test_a_file_that_says_what_cannot_be_is_refused(tmp_path, records_of_filled, changed):
    records = copy.deepcopy(records_of_filled)
    *keys, value = changed
    place = records
    for key in keys[:-1]:
        place = place[key]
    if value is KeyError:
        del place[keys[-1]]
    else:
        place[keys[-1]] = value
    chained(tmp_path / "ledger", records)
    with pytest.raises(PrivacyError, match="cannot be read as a PrivacyLedger"):
        PrivacyLedger.load(tmp_path / "ledger")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]\n",
        b"{}\n",
        b"{}",
        b"precious, and no ledger",
        pickle.dumps({"budget": 1.0}),
        b"[" * 100_000 + b"\n",
        b'{"a": 1, "a": 2}\n',
        b'{"a": NaN}\n',
    ],
    ids=["empty", "list", "object", "open", "text", "pickle", "deep", "twice", "nan"],
)
def test_a_file_of_something_else_is_refused_and_kept(tmp_path, text):
    (tmp_path / "ledger").write_bytes(text)
    for opened in (PrivacyLedger.load, lambda path: ledger(path=path)):
        with pytest.raises(PrivacyError, match="cannot be read as a PrivacyLedger"):
            opened(tmp_path / "ledger")
    assert (tmp_path / "ledger").read_bytes() == text


def test_a_closed_plan_survives_a_file(tmp_path):
    book = ledger(path=tmp_path / "ledger")
    book.charge(gaussian(calibrate(gaussian, epsilon=1.0, **AT)), **ZERO_OUT)
    again = PrivacyLedger.load(tmp_path / "ledger")
    assert again.remaining() == 0.0 and again._state.split == book._state.split
    records = read(tmp_path / "ledger")
    records[1]["plan"]["epsilon"] = 0.5
    chained(tmp_path / "ledger", records)
    with pytest.raises(PrivacyError, match="sets apart"):
        PrivacyLedger.load(tmp_path / "ledger")


# Several processes ------------------------------------------------------------------------------


def charge(path, worker, told, number):
    book = PrivacyLedger.load(path)
    for i in range(number):
        label = f"{worker}-{i}"
        book.charge(gaussian(1000.0), label, neighboring_relation="zero_out")
        told.send(label)  # what is told has returned


def told_by(end):
    """What a process still tells before it ends."""
    with suppress(EOFError):
        while True:
            yield end.recv()


def test_processes_that_are_killed_lose_nothing(tmp_path):
    """Each charge that returned is there once, and one that did not is there once or not at all."""
    path = tmp_path / "ledger"
    ledger(50.0, path=path)
    context, workers, ends = multiprocessing.get_context("fork"), [], []
    for i in range(3):
        end, other = context.Pipe(duplex=False)
        number = 15 if i else 100_000  # the first is not done by itself before it is killed
        workers.append(context.Process(target=charge, args=(path, i, other, number)))
        workers[-1].start()
        other.close()  # so that nothing more comes once the process has ended
        ends.append(end)
    told = [ends[0].recv() for _ in range(3)]
    workers[0].kill()
    for worker, end in zip(workers, ends, strict=True):
        told += told_by(end)
        worker.join()
    assert [worker.exitcode for worker in workers] == [-signal.SIGKILL, 0, 0]
    labels = [entry.label for entry in PrivacyLedger.load(path).entries]
    assert len(labels) == len(set(labels)) and len(told) >= 33
    assert set(told) <= set(labels) and len(set(labels) - set(told)) <= 1


def charge_in_fork(book, queue):
    try:
        book.charge(gaussian(100.0), "forked", **ZERO_OUT)
        queue.put("charged")
    except PrivacyError as error:
        queue.put(str(error))


def test_a_forked_process_charges_the_same_file(tmp_path):
    book = ledger(path=tmp_path / "ledger")
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=charge_in_fork, args=(book, queue))
    process.start()
    assert queue.get(timeout=60) == "charged"
    process.join()
    assert [entry.label for entry in book.entries] == ["forked"]


def test_two_ledgers_on_one_file_cannot_overspend_together(tmp_path):
    first, second = (ledger(path=tmp_path / "ledger") for _ in range(2))
    first.charge(gaussian(4.5), **ZERO_OUT)
    with pytest.raises(PrivacyBudgetError):
        second.charge(gaussian(4.5), **ZERO_OUT)
    assert len(first) == len(second) == 1


def test_who_waits_for_a_charge_of_another_goes_on_at_once(tmp_path, monkeypatch):
    """A charge takes less than a millisecond, and many of them small fits with two workers."""
    book, slept = ledger(path=tmp_path / "ledger"), [0.0]
    waiting = threading.Thread(target=lambda: PrivacyLedger.load(tmp_path / "ledger"))
    with book._state.journal.held(), monkeypatch.context() as patch:
        patch.setattr(time, "sleep", slept.append)
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
    waiting.join(60)
    assert not waiting.is_alive() and max(slept) <= 2e-3


def test_a_ledger_waits_for_those_that_lock_it_by_other_means_and_they_for_it(tmp_path):
    book, lock = ledger(path=tmp_path / "ledger"), FileLock(tmp_path / "ledger.lock")
    with book._state.journal.held(), pytest.raises(Timeout):
        lock.acquire(timeout=0)
    charging = threading.Thread(target=lambda: book.charge(gaussian(9.0), **ZERO_OUT))
    with lock:
        charging.start()
        charging.join(0.2)
        assert charging.is_alive()
    charging.join(60)
    assert len(book) == 1


@pytest.mark.skipif(os.name != "posix", reason="a lock in use cannot be deleted elsewhere")
def test_who_waits_for_a_lock_that_is_deleted_takes_the_one_in_its_place(tmp_path):
    book = ledger(path=tmp_path / "ledger")
    charging = threading.Thread(target=lambda: book.charge(gaussian(9.0), **ZERO_OUT))
    with ExitStack() as later:
        with Journal(tmp_path / "ledger").held():
            charging.start()
            charging.join(0.2)
            (tmp_path / "ledger.lock").unlink()
            later.enter_context(Journal(tmp_path / "ledger").held())
        charging.join(0.2)
        assert charging.is_alive()
    charging.join(60)
    assert len(book) == 1


def test_a_file_opens_again_after_a_fit_of_which_nothing_ran(tmp_path):
    book = ledger(path=tmp_path / "ledger")
    entry, _ = book._state.add("fit", gaussian(9.0), About())
    book._state.settle(entry, composed([]))
    again = PrivacyLedger.load(tmp_path / "ledger")
    assert again.epsilon() == 0 and again.remaining() == pytest.approx(book.remaining())


def test_a_file_opens_again_after_less_was_released_without_a_delta_than_a_plan_knew(tmp_path):
    book = ledger(3.0, path=tmp_path / "ledger")
    first, _ = book._state.add("first", laplace(0.5, "zero_out"), About())
    book._state.add("second", laplace(0.5, "zero_out"), About())
    book._state.add("fit", gaussian(6.0), About())
    lower = book._state.replace_entry(first, laplace(0.01, "zero_out"))
    assert lower.charge.sum_epsilon == first.charge.sum_epsilon == 0.5  # which the sums rest on
    assert PrivacyLedger.load(tmp_path / "ledger").epsilon() == book.epsilon()


def test_a_file_of_a_single_account_goes_on_by_default(tmp_path):
    ledger(path=tmp_path / "ledger", pure_epsilon=0.0)
    assert PrivacyLedger(1.0, 1e-5, path=tmp_path / "ledger").remaining() > 0.99
    with pytest.raises(ValueError, match="`pure_epsilon`"):
        ledger(path=tmp_path / "ledger", pure_epsilon=0.2)
