"""Dates of tables of any library, as days since 1970-01-01.

A time of day is cut off. A time with a zone is refused: the same moment is on different days in
different zones, and libraries convert such columns to UTC without a word.
"""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np

from dpsubspace._core.tables.frames import Numeric, read_column, times_of, what_is

_EPOCH = datetime.date(1970, 1, 1).toordinal()

# Days of Python's dates, whose years are 1 to 9999.
FIRST_DAY, LAST_DAY = (each.toordinal() - _EPOCH for each in (datetime.date.min, datetime.date.max))

# Words for what is no date.
_NO_DATE, _ZONE = "text that is no date of the form 2024-05-31", "times with a time zone"

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def day_of(value: Any) -> int | str:
    """Return the day of a date, a time without a zone or a text; or words for what it is."""
    if isinstance(value, str):
        try:
            value = datetime.datetime.fromisoformat(value)
        except ValueError:
            return _NO_DATE
    what = what_is(type(value))
    if what != "dates or times" or isinstance(value, datetime.time):
        return "times without a date" if isinstance(value, datetime.time) else what
    if isinstance(value, np.datetime64):
        return "missing" if np.isnat(value) else int(_days(value))
    if not isinstance(value, datetime.date):  # pandas has spans of time, such as a month
        return "periods, which may have many days"
    return _ZONE if getattr(value, "tzinfo", None) else value.toordinal() - _EPOCH


def text_of(day: float) -> str:
    """Write a day as a date, such as 2024-05-31."""
    return datetime.date.fromordinal(int(np.floor(day)) + _EPOCH).isoformat()


def read_dates(column: Any, label: str) -> Numeric:
    """Read a column of dates of any library; ValueError that starts with `label` for others."""
    times, zoned = times_of(column)
    if zoned:
        raise _refused(label, _ZONE)
    if times is not None:
        missing = np.isnat(times)
        return Numeric(np.where(missing, 0, _days(times)), missing)
    found = read_column(column, label)
    if isinstance(found, Numeric):  # as a column may be that has no value
        if not found.missing.all():
            raise _refused(label, "numbers")
        return Numeric(np.zeros(len(found.missing), np.int64), found.missing)
    days = [day_of(value) for value in found.values]
    wrong = {day for day in days if isinstance(day, str)} - {"missing"}  # of NumPy's own objects
    if wrong:
        raise _refused(label, min(wrong))
    gone = np.array([isinstance(day, str) for day in days] + [True])
    known = np.array([0 if isinstance(day, str) else day for day in days] + [0], dtype=np.int64)
    return Numeric(known[found.codes], gone[found.codes])


def _days(times: Any) -> Any:
    return times.astype("datetime64[D]").astype(np.int64)


def _refused(label: str, what: str) -> ValueError:
    way_out = (
        "turn them into text such as '2024-05-31', or into dates by a format that is written down,"
        " as in pandas.to_datetime(column, format='%d/%m/%Y'): a format that is guessed from the"
        " values lets one row decide how all others are read"
    )
    if what == _ZONE:
        way_out = (
            "a day begins at another time in each zone. Convert them to one zone that is public,"
            " and leave it out, as column.dt.tz_localize(None) does in pandas"
        )
    asked = ", and the schema has a Date for it" if label else ""  # a draft has no label
    return ValueError(f"{label} holds {what}{asked}: {way_out}.")


# The calendar -----------------------------------------------------------------------------------


def month_of(days: np.ndarray) -> np.ndarray:
    """Months of days, from 0 to 11."""
    return days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) % 12


def weekday_of(days: np.ndarray) -> np.ndarray:
    """Weekdays of days, from 0 for Monday to 6: 1970-01-01 was a Thursday."""
    return (days + 3) % 7
