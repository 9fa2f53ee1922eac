"""Pictures of distances: what is drawn, in which order, and that every name can be read."""

import itertools
import sys
from functools import partial

import numpy as np
import pandas as pd
import pytest
from helpers import pairs_first

from dpsubspace import PrivacyWarning
from dpsubspace.public_data import (
    GSDRankingDisplay,
    gradient_subspace_distance,
    optimal_transport_distance,
    task2vec_distance,
)

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

DISTANCES = {"far": 0.9, "near": 0.1, "between": 0.4}
TABLE = {"task 1": {"a": 0.1, "b": 0.7}, "task 2": {"b": 0.2, "a": 0.6}}
LONG = "a set of images that somebody has collected for a purpose that needs many words"
rng = np.random.default_rng(0)
SETS = {"one": rng.normal(size=(40, 3)), "two": rng.normal(size=(30, 3)) * [1, 2, 3]}
SETS["three"] = rng.normal(size=(50, 3)) + 2
quiet = pytest.mark.filterwarnings("ignore:.*is not private:dpsubspace.PrivacyWarning")
draw, compare = GSDRankingDisplay.from_distances, GSDRankingDisplay.from_sets


def names_of(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def widths(display):
    return [bar.get_width() for bar in display.bars_]


def mean_gap(X_private, X_public, y_private=None, y_public=None):
    """A distance of one's own."""
    labelled = 0 if y_private is None else 10 * abs(np.mean(y_private) - np.mean(y_public))
    return abs(np.mean(X_private) - np.mean(X_public)) + labelled


# Bars --------------------------------------------------------------------------------------------


def test_bars_are_sorted_with_the_nearest_on_top():
    display = draw(DISTANCES, distance_name="GSD")
    assert widths(display) == [0.1, 0.4, 0.9]
    ax = display.ax_
    assert names_of(ax.yaxis) == ["near", "between", "far"] and ax.yaxis_inverted()
    assert ax.get_xlabel() == "GSD" and ax.figure is display.figure_
    assert [text.get_text() for text in display.text_] == ["0.1", "0.4", "0.9"]
    assert display.image_ is display.reference_line_ is display.bars_.errorbar is None
    assert ax.get_legend() is None and ax.get_xlim()[0] == 0
    np.testing.assert_array_equal(display.distances, [0.9, 0.1, 0.4])  # as given
    assert display.names == ["far", "near", "between"] and display.row_names is None


def test_error_bars_stand_at_their_own_bars():
    display = draw(DISTANCES, spread={"near": 0.05, "far": 0.2, "between": 0.0})
    segments = display.bars_.errorbar.lines[2][0].get_segments()
    ends = [tuple(segment[:, 0]) for segment in segments]
    np.testing.assert_allclose(ends, [(0.05, 0.15), (0.4, 0.4), (0.7, 1.1)])


def test_the_reference_is_a_line_with_a_name():
    display = draw(DISTANCES, reference=0.5, reference_name="none")
    np.testing.assert_allclose(display.reference_line_.get_xdata(), 0.5)
    assert [text.get_text() for text in display.ax_.get_legend().get_texts()] == ["none"]


def test_bars_are_drawn_as_told():
    _, ax = plt.subplots()
    display = draw(
        DISTANCES,
        reference=0.5,
        ax=ax,
        values_format=".2f",
        bar_kw={"color": "red"},
        text_kw={"color": "blue"},
        reference_kw={"linestyle": ":"},
    )
    assert display.ax_ is ax
    assert display.bars_[0].get_facecolor() == (1, 0, 0, 1)
    assert display.text_[0].get_text() == "0.10" and display.text_[0].get_color() == "blue"
    assert display.reference_line_.get_linestyle() == ":"
    again = display.plot(include_values=False)
    assert again is display and display.ax_ is not ax and display.text_ is None


def test_one_set_equal_ones_and_negative_ones():
    assert widths(draw({"only": 0.3})) == [0.3]
    ties = draw({"b": 0.3, "a": 0.3, "c": -0.1})
    assert names_of(ties.ax_.yaxis) == ["c", "b", "a"]
    assert ties.ax_.get_xlim()[0] < -0.1


# Heat maps ---------------------------------------------------------------------------------------


def test_a_table_is_a_heat_map_with_its_names():
    display = draw(TABLE, distance_name="GSD")
    np.testing.assert_array_equal(display.image_.get_array(), [[0.1, 0.7], [0.6, 0.2]])
    assert names_of(display.ax_.xaxis) == display.names == ["a", "b"]
    assert names_of(display.ax_.yaxis) == display.row_names == ["task 1", "task 2"]
    assert [[text.get_text() for text in row] for row in display.text_] == [
        ["0.1", "0.7"],
        ["0.6", "0.2"],
    ]
    assert display.text_[0, 1].get_position() == (1, 0)
    assert display.image_.colorbar.ax.get_ylabel() == "GSD"
    assert display.bars_ is None


def test_numbers_stand_out_from_their_cells():
    display = draw(TABLE)
    for (i, j), text in np.ndenumerate(display.text_):
        cell = display.image_.cmap(display.image_.norm(display.distances[i, j]))
        assert np.abs(np.subtract(cell, text.get_color())[:3]).max() > 0.3


def test_heat_maps_are_drawn_as_told():
    display = draw(TABLE, image_kw={"cmap": "gray", "vmax": 2.0}, text_kw={"color": "red"})
    assert display.image_.get_cmap().name == "gray" and display.image_.get_clim() == (0.1, 2.0)
    assert display.text_[0, 0].get_color() == "red"
    display.plot(include_values=False)
    assert display.text_ is None and display.image_ is not None


def test_one_distance_a_set_can_be_a_heat_map_of_one_row():
    display = draw(DISTANCES, kind="heatmap")
    np.testing.assert_array_equal(display.image_.get_array(), [[0.9, 0.1, 0.4]])
    with pytest.raises(ValueError, match="`kind`='bars' is for one distance a set"):
        draw(TABLE, kind="bars")


# Names -------------------------------------------------------------------------------------------


def outside(display):
    """Texts that the figure cuts off, or that are no longer beside axes of some size."""
    figure, ax = display.figure_, display.ax_
    figure.canvas.draw()
    width, height = figure.get_size_inches() * figure.dpi
    texts = [*ax.get_yticklabels(), ax.xaxis.label, *display.text_.ravel()]
    texts += (
        []
        if display.image_ is None
        else [*ax.get_xticklabels(), display.image_.colorbar.ax.yaxis.label]
    )
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts if text.get_text()]
    area = ax.get_window_extent()
    assert len(boxes) > 2 and min(area.width, area.height) > 40
    return [
        name
        for name, box in boxes
        if box.x0 < -1 or box.y0 < -1 or box.x1 > width + 1 or box.y1 > height + 1
    ]


def overlapping(labels):
    """Whether any two labels in a column overlap."""
    boxes = sorted((label.get_window_extent() for label in labels), key=lambda box: box.y0)
    return any(a.y1 > b.y0 for a, b in itertools.pairwise(boxes))


@pytest.mark.parametrize(
    ("kind", "n", "size"), pairs_first(["bars", "heatmap"], [1, 5, 25], [10, 20])
)
def test_no_name_is_cut_off(kind, n, size):
    names = [LONG, *(f"set number {i}" for i in range(n))]
    with plt.rc_context({"font.size": size}):
        if kind == "bars":
            display = draw({name: i / n for i, name in enumerate(names)}, reference=0.1)
        else:
            display = draw({name: {other: 1.0 for other in names} for name in names})
        assert outside(display) == []
        assert not overlapping(display.ax_.get_yticklabels())


def test_a_name_that_is_cut_off_would_be_noticed():
    _, ax = plt.subplots()
    assert outside(draw({LONG: 1.0, "b": 2.0, "c": 0.5}, ax=ax)) == [LONG]


# From sets ---------------------------------------------------------------------------------------


@quiet
@pytest.mark.parametrize("name", ["task2vec", "optimal_transport"])
def test_each_two_sets_are_compared(name):
    function = {"task2vec": task2vec_distance, "optimal_transport": optimal_transport_distance}
    display = compare(SETS, name, random_state=0)
    assert display.names == display.row_names == list(SETS)
    for i, one in enumerate(SETS.values()):
        for j, other in enumerate(SETS.values()):
            expected = function[name](one, other, random_state=0)
            assert display.distances[i, j] == pytest.approx(expected, abs=1e-12)
    words = name.replace("_", " ")
    assert display.distance_name == f"Distance ({words})"
    again = compare(SETS, partial(function[name], random_state=0))
    np.testing.assert_array_equal(again.distances, display.distances)
    assert again.distance_name == display.distance_name


def test_a_distance_of_ones_own_with_and_without_labels():
    display = compare(SETS, mean_gap)
    means = np.array([rows.mean() for rows in SETS.values()])
    gaps = np.abs(means[:, None] - means)
    np.testing.assert_allclose(display.distances, gaps)
    assert display.distance_name == "Distance (mean gap)"
    labels = {name: np.full(len(rows), i) for i, (name, rows) in enumerate(SETS.items())}
    places = np.arange(3)
    expected = gaps + 10 * np.abs(places[:, None] - places)
    np.testing.assert_allclose(compare(SETS, mean_gap, labels=labels).distances, expected)
    assert compare(SETS, mean_gap, distance_name="Gap").distance_name == "Gap"


@quiet
def test_gradient_subspaces_are_compared_unless_told_otherwise():
    rows = {name: rng.normal(size=(60, 20)) * np.linspace(1, i, 20) for i, name in enumerate("ab")}
    display = compare(rows, random_state=0)
    function = partial(gradient_subspace_distance, random_state=0)
    np.testing.assert_array_equal(display.distances, compare(rows, function).distances)
    assert display.distances[0, 1] == function(rows["a"], rows["b"])
    assert display.distance_name == "Distance (gradient subspace)"
    with pytest.raises(ValueError, match="draws labels of its own: leave out `labels`"):
        compare(rows, labels={"a": np.zeros(60), "b": np.ones(60)})


@quiet
def test_sets_of_many_forms():
    forms = {"one": pd.DataFrame(SETS["one"]), "two": SETS["two"].tolist(), "three": SETS["three"]}
    expected = compare(SETS, "task2vec").distances
    np.testing.assert_allclose(compare(forms, "task2vec").distances, expected)


def test_it_is_said_that_it_is_not_private():
    with pytest.warns(PrivacyWarning, match="is not private") as told:
        compare(SETS, "task2vec")
    assert {each.filename for each in told} == {__file__}


# Bad input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("distances", "options", "match"),
    [
        ([0.1, 0.2], {}, r"`distances` must be a dict with one entry a set, .* got list"),
        ({}, {}, "`distances` must be a dict"),
        ({"a": np.nan}, {}, r"`distances\['a'\]` must be a number"),
        ({"a": np.inf}, {}, r"`distances\['a'\]`"),
        ({"a": "near"}, {}, r"`distances\['a'\]`"),
        ({1: 0.5, "1": 0.7}, {}, "different as text"),
        (DISTANCES, {"spread": {"near": 0.1}}, "`spread` must have the names of `distances`"),
        (DISTANCES, {"spread": 0.1}, "`spread` must be a dict"),
        (DISTANCES, {"spread": DISTANCES | {"far": -1.0}}, r"`spread\['far'\]`"),
        (DISTANCES, {"reference": "none"}, "`reference` must be a number"),
        (DISTANCES, {"kind": "pie"}, "`kind` must be one of"),
        (DISTANCES, {"include_values": "yes"}, "`include_values`"),
        (TABLE, {"reference": 0.5}, "`spread` and `reference` are for bars"),
        ({"t": {"a": 1.0}, "s": {"b": 1.0}}, {}, r"`distances\['s'\]` must have the names of"),
        ({"t": {"a": 1.0}, "s": 0.1}, {}, r"`distances\['s'\]` must be a dict"),
    ],
)
def test_errors_of_from_distances(distances, options, match):
    with pytest.raises(ValueError, match=match):
        draw(distances, **options)
    assert plt.get_fignums() == []


@pytest.mark.parametrize(
    ("sets", "options", "match"),
    [
        ([*SETS.values()], {}, "`sets` must be a dict with one entry a set, .* got list"),
        ({"one": SETS["one"]}, {}, "at least two sets, got 1"),
        (SETS, {"distance": "euclidean"}, "`distance` must be one of"),
        (SETS, {"labels": {"one": [1]}}, "`labels` must have the names of `sets`"),
        (SETS, {"labels": [1]}, "`labels` must be a dict"),
        (SETS, {"distance": lambda X, Z: np.nan}, r"`distance\(...\)` must be a number"),
        (
            {"one": SETS["one"], "narrow": SETS["two"][:, :2]},
            {},
            "'one' and 'narrow': `X_public` has 2 features and `X_private` has 3",
        ),
        ({"one": SETS["one"], "empty": SETS["two"][:0]}, {}, "'one' and 'empty': .*0 sample"),
    ],
)
@quiet
def test_errors_of_from_sets(sets, options, match):
    with pytest.raises(ValueError, match=match):
        compare(sets, **{"distance": "task2vec"} | options)
    assert plt.get_fignums() == []


def test_without_matplotlib_nothing_is_compared_and_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    for attempt in (
        lambda: compare(SETS, lambda *sets: pytest.fail("compared")),
        lambda: draw(DISTANCES),
    ):
        with pytest.raises(
            ImportError, match=r'GSDRankingDisplay needs .* pip install "dpsubspace\[plot\]"'
        ):
            attempt()
    made = GSDRankingDisplay(distances=[0.1], names=["a"])  # data need no matplotlib
    assert made.distances == [0.1]
