"""The picture of projection errors: what is drawn, and from which rows."""

import numpy as np
import pytest

from dpsubspace import private_mean
from dpsubspace.public_data import ProjectionErrorDisplay, private_projection_error

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

SCALES = np.linspace(2, 0.1, 20)
ROWS = SCALES * np.random.default_rng(0).normal(size=(600, 20))


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def words(display):
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


def test_public_rows_are_split_in_halves():
    """Rows on one direction, of which a half says all: nothing is missed of the other half."""
    rows = np.outer(np.arange(1, 10), np.ones(4))
    display = ProjectionErrorDisplay.from_public(rows, random_state=0)
    np.testing.assert_allclose(display.error, [0.0], atol=1e-12)
    np.testing.assert_allclose(display.random, [0.75])
    assert display.privacy is display.noise is display.band_ is None
    whole = ProjectionErrorDisplay.from_public(ROWS[:30], random_state=0, n_components=[15])
    assert whole.error[0] > 1e-6  # directions are of other rows


def test_several_public_sets_are_one():
    parts = ProjectionErrorDisplay.from_public((ROWS[:300], ROWS[300:]), random_state=0)
    whole = ProjectionErrorDisplay.from_public(ROWS, random_state=0)
    np.testing.assert_allclose(parts.error, whole.error)
    np.testing.assert_array_equal(whole.n_components, [1, 2, 4, 8, 16, 20])


def test_released_errors_are_drawn_with_their_noise():
    released = private_projection_error(ROWS[100:], ROWS[:100])
    display = ProjectionErrorDisplay.from_released(released, name="private")
    np.testing.assert_array_equal(display.line_.get_ydata(), released.value.error)
    np.testing.assert_array_equal(display.random_line_.get_ydata(), released.value.random)
    assert display.privacy is released.privacy and display.band_ is not None
    ends = display.band_.get_paths()[0].vertices[:, 1]
    assert ends.min() >= 0 and ends.max() <= 1 and display.ax_.get_xscale() == "log"
    rank = f"{released.value.stable_rank:.3g}"
    assert words(display) == [f"private, stable rank at most {rank}", "random directions"]


def test_curves_stand_beside_each_other():
    first = ProjectionErrorDisplay.from_public(ROWS, random_state=0)
    second = ProjectionErrorDisplay(n_components=[1, 2], error=[0.5, 0.1], stable_rank=np.inf)
    second.plot(first.ax_, name="ours")
    assert len(first.ax_.lines) == 3 and words(second)[-1] == "ours"
    assert second.random_line_ is second.band_ is None


def test_what_is_no_such_release_is_refused():
    for released in (private_mean(ROWS), [0.5], None):
        with pytest.raises(ValueError, match="`released` must be what private_projection_error"):
            ProjectionErrorDisplay.from_released(released)
    with pytest.raises(ValueError, match="`X_public` has one row"):
        ProjectionErrorDisplay.from_public(ROWS[:1])
    with pytest.raises(ValueError, match="plot_random"):
        ProjectionErrorDisplay(n_components=[1], error=[0.5]).plot(plot_random=1)
