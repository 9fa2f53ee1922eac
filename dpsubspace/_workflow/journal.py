"""A journal: a file of JSON lines that only grows, is synced, and notices what happened to it.

Each line is a record with the number of the line, the hash of the line before it and its own. So
what was changed, taken out of the middle or put in another order is found when the file is read.
What the chain cannot tell is that its last records were cut off: that needs a copy elsewhere.

*What is promised.* A record whose :meth:`Journal.append` returned is in the file, once, and on the
disk. One whose writer was killed is there as a whole or not at all: half a line, which only a
crash leaves and which nothing was released after, is taken off by whoever opens the file next.
Writing one record twice, by its id, changes nothing. Between two processes an operating
system's lock on a file beside the journal decides; it goes with the process that holds it.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from dpsubspace._strict_json import read_json
from dpsubspace.exceptions import PrivacyError, PrivacyWarning, warn

__all__ = ["Journal", "broken", "new_id"]

_START = "0" * 64


def new_id() -> str:
    """Id that no other record has."""
    return uuid.uuid4().hex


class Journal:
    """A file of records that several processes may write to.

    Parameters
    ----------
    path : path-like
        File; :meth:`create` makes it.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path).absolute()
        self._offset = self._number = 0  # how much of the file has been read
        self._last = _START
        self._ids: set[str] = set()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within it no other thread or process writes. Not to be entered twice."""
        with FileLock(f"{self.path}.lock"):
            yield

    def create(self, records: list[dict[str, Any]]) -> None:
        """Write a new file with `records` in the place of any other, which stays if that fails."""
        lines, last = [], _START
        for number, record in enumerate(records):
            line, last = _line(number, last, record)
            lines.append(line)
        beside = self.path.with_name(self.path.name + ".new")
        with open(beside, "wb") as file:
            file.write(b"".join(lines))
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self.path)
        _sync_folder(self.path.parent)

    def news(self) -> list[dict[str, Any]]:
        """Records that were written since the last call; PrivacyError for a broken file."""
        with open(self.path, "r+b") as file:
            size = file.seek(0, os.SEEK_END)
            if size < self._offset:
                raise broken(self.path, "it is shorter than it was")
            file.seek(self._offset)
            text = file.read()
            whole = text.rfind(b"\n") + 1
            found = []
            for line in text[:whole].splitlines(keepends=True):
                found.append(self._read(line))
                self._offset += len(line)
            if whole < len(text):
                self._cut(file, len(text) - whole)
        return found

    def append(self, record: dict[str, Any]) -> bool:
        """Write a record with an id and sync it; False if it was there already.

        To be called while the journal is held and read to its end. If the disk is full nothing
        of it stays.
        """
        if record["id"] in self._ids:
            return False
        line, _ = _line(self._number, self._last, record)
        with open(self.path, "r+b", buffering=0) as file:
            file.seek(self._offset)
            try:
                if file.write(line) != len(line):
                    raise OSError(f"{str(self.path)!r} could not be written to.")
                os.fsync(file.fileno())
            except BaseException:
                file.truncate(self._offset)
                raise
        self._read(line)
        self._offset += len(line)
        return True

    def _read(self, line: bytes) -> dict[str, Any]:
        """Record of a line that follows those that have been read."""
        try:
            record = read_json(line)
        except (ValueError, RecursionError) as error:
            raise broken(self.path, f"line {self._number + 1} is no JSON ({error})") from error
        if not isinstance(record, dict):
            raise broken(self.path, f"line {self._number + 1} is no record")
        expected, last = _line(self._number, self._last, record)
        if line != expected:
            raise broken(
                self.path,
                f"line {self._number + 1} is not what was written there: it was changed, or a line"
                " before it was changed, taken out or moved",
            )
        if not isinstance(record.get("id"), str) or record["id"] in self._ids:
            raise broken(self.path, f"line {self._number + 1} has no id of its own")
        self._ids.add(record["id"])
        self._number, self._last = self._number + 1, last
        return record

    def _cut(self, file: Any, excess: int) -> None:
        """Take off half a line at the end, of a record whose writer was killed."""
        if not self._number:
            raise broken(self.path, "it has no whole record")
        warn(
            f"the last {excess} bytes of {str(self.path)!r} are half a record: its writer was"
            " stopped before anything was released, and nothing is charged for it. They were"
            " taken off.",
            PrivacyWarning,
            about=("torn", str(self.path)),
        )
        file.truncate(file.seek(0, os.SEEK_END) - excess)
        os.fsync(file.fileno())


def _line(number: int, last: str, record: dict[str, Any]) -> tuple[bytes, str]:
    """Line of a record, and its hash."""
    own = {key: value for key, value in record.items() if key not in ("n", "previous", "hash")}
    own = {"n": number, "previous": last, **own}
    digest = hashlib.sha256(_text(own)).hexdigest()
    return _text({**own, "hash": digest}) + b"\n", digest


def _text(record: dict[str, Any]) -> bytes:
    return json.dumps(record, allow_nan=False, separators=(",", ":")).encode()


def _sync_folder(folder: Path) -> None:
    """Make sure that a new name in a folder is on the disk, where that can be asked for."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def broken(path: Any, why: str) -> PrivacyError:
    """Error about a file that cannot be trusted."""
    return PrivacyError(
        f"{os.fspath(path)!r} cannot be read as a PrivacyLedger: {why}. Nothing was loaded, and the"
        " file was left as it is: keep it. Open the last copy that you saved; without one, charge"
        " what was released to a new ledger."
    )
