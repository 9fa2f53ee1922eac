"""The public interface is the one that was written down."""

import difflib

import api

import dpsubspace


def test_the_interface_is_the_one_that_was_written_down():
    """A change is wanted: ``python tests/house/api.py --write``, and a line in CHANGELOG.md.

    What goes, or changes its name, its place or its default, follows GOVERNANCE.md.
    """
    written = api.SNAPSHOT.read_text(encoding="utf-8").splitlines()
    assert "\n".join(difflib.unified_diff(written, [*api.lines()], lineterm="", n=0)) == ""


def test_every_name_is_written_down():
    names = {line.split("(")[0].split(":")[0] for line in api.lines()}
    assert set(dpsubspace.__all__) <= names
    for name in ("PrivateSearch.predict", "PrivacyGuarantee.to_json", "DPSGDClassifier.fit"):
        assert name in names


def test_a_change_of_a_default_is_seen(monkeypatch):
    before = [*api.lines()]
    monkeypatch.setattr(dpsubspace, "subspace_distance", lambda A, B, scale=2.0: 0.0)
    changed = [line for line in api.lines() if line not in before]
    assert changed == ["subspace_distance(A, B, scale=2.0): function"]
