"""Real data sets for the benchmarks, bounded by public knowledge only.

``load(name)`` gives ``(X, y, X_test, y_test)``; ``DATA_SETS[name].public`` says which public
knowledge the scaling rests on, ``DATA_SETS[name].target_bounds`` is the public range of
regression targets (which come in their own units). Splits are fixed: seeds vary the noise.

Files are looked for in the folder that the environment variable ``DPSUBSPACE_DATA`` names
(``mnist.npz``, ``adult.npz`` and so on), then on OpenML where there is a counterpart;
digits, breast cancer, iris, wine and diabetes come with scikit-learn.

usage: DPSUBSPACE_DATA=folder python benchmarks/_data.py [name ...]
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import scipy
import sklearn
from sklearn import datasets
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.pipeline import make_pipeline

FOLDER = "DPSUBSPACE_DATA"


class DataNotFoundError(RuntimeError):
    """The data set is in no folder that was named and cannot be downloaded."""


@dataclass(frozen=True)
class DataSet:
    """How to load a data set and what its scaling takes to be public."""

    load: Callable
    public: str
    target_bounds: tuple[float, float] | None = None


DATA_SETS: dict[str, DataSet] = {}


def load(name):
    """Return ``(X, y, X_test, y_test)`` of the data set called `name`."""
    if name not in DATA_SETS:
        raise KeyError(f"no data set {name!r}; there are {', '.join(DATA_SETS)}")
    return DATA_SETS[name].load()


def _data_set(name, public, target_bounds=None):
    def register(function):
        DATA_SETS[name] = DataSet(function, public, target_bounds)
        return function

    return register


# Where files come from ------------------------------------------------------------------------


@cache
def arrays(file, names):
    """Arrays `names` of an archive in the folder, or None where it is not there."""
    folder = os.environ.get(FOLDER)
    if not folder or not (path := Path(folder) / f"{file}.npz").exists():
        return None
    with np.load(path) as archive:
        return tuple(archive[name] for name in names)


def needed(file, names):
    """The same, where no other source has these columns."""
    found = arrays(file, names)
    if found is None:
        raise DataNotFoundError(
            f"{file}.npz is not there and OpenML has no counterpart: let {FOLDER} name its folder."
        )
    return found


@cache
def openml(name, version=1, as_frame=False):
    """What OpenML has by this name; a clear error where it cannot be had."""
    try:
        return datasets.fetch_openml(name, version=version, as_frame=as_frame, parser="auto")
    except (OSError, ValueError) as error:  # offline, or refused by the server
        raise DataNotFoundError(
            f"OpenML's {name!r} could not be fetched ({error}): go online, or let {FOLDER} name"
            " a folder that has the data."
        ) from error


# Scaling and splits ---------------------------------------------------------------------------


def split(X, y, n_test, n_train=None):
    """The first `n_test` of shuffled rows to test, the next `n_train` (all) to train."""
    order = np.random.default_rng(0).permutation(len(X))
    train = order[n_test:] if n_train is None else order[n_test : n_test + n_train]
    return X[train], y[train], X[order[:n_test]], y[order[:n_test]]


def in_fold(groups, seed, n_folds=4):
    """Which rows are of the groups that a seed tests with, so that no group is on both sides.

    Groups are shuffled and dealt into `n_folds`. As many seeds in a row have every group once, and
    the next ones deal anew.
    """
    names = np.unique(groups)
    deal, fold = divmod(seed, n_folds)
    names = np.random.default_rng([7, deal]).permutation(names)
    return np.isin(groups, np.array_split(names, n_folds)[fold])


def to_unit_ball(X, low, high):
    """Columns from [low, high] to [-1, 1], cut off there, over sqrt(d): rows of norm <= 1."""
    low, high = np.asarray(low, dtype=float), np.asarray(high, dtype=float)
    scaled = 2 * (np.asarray(X, dtype=float) - low) / (high - low) - 1
    return np.clip(scaled, -1, 1) / np.sqrt(scaled.shape[1])


def _pixels(images):
    return images.reshape(len(images), -1).astype(np.float32) / np.float32(255)


# Bundled with scikit-learn --------------------------------------------------------------------


@_data_set("digits", "none: rows are divided by their own norm")
def digits():
    X, y = datasets.load_digits(return_X_y=True)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return split(X, y, 360)


def _by_published_ranges(loader, n_test):
    X, y = loader(return_X_y=True)
    return split(to_unit_ball(X, X.min(axis=0), X.max(axis=0)), y, n_test)


@_data_set("cancer", "ranges of the columns, a table in the description of the data set")
def cancer():
    return _by_published_ranges(datasets.load_breast_cancer, 114)


@_data_set("iris", "ranges of the columns, a table in the description of the data set")
def iris():
    return _by_published_ranges(datasets.load_iris, 30)


@_data_set("wine", "ranges of the columns, a table in the description of the data set")
def wine():
    return _by_published_ranges(datasets.load_wine, 36)


@_data_set(
    "diabetes",
    "adult age, two codes, clinical ranges of body mass index, blood pressure and blood serum"
    " (round numbers); the target is 25 to 346 by the description",
    target_bounds=(25.0, 346.0),
)
def diabetes():
    X, y = datasets.load_diabetes(return_X_y=True, scaled=False)
    low = (18, 1, 15, 60, 90, 40, 20, 1, 3.0, 50)
    high = (80, 2, 45, 140, 310, 250, 100, 10, 6.5, 130)
    return split(to_unit_ball(X, low, high), y, 89)


# Images: pixels from 0 to 255, over 255 -------------------------------------------------------

_PIXELS = "pixels are 0 to 255"
_ALL = ("train_x", "train_y", "test_x", "test_y")


def _whole(file, name, n_train=60_000):
    """Training and test set in their original order; on OpenML one follows the other."""
    found = arrays(file, _ALL)
    if found is None:
        bunch = openml(name)
        X, y = bunch.data, bunch.target.astype(int)
        found = X[:n_train], y[:n_train], X[n_train:], y[n_train:]
    X, y, X_test, y_test = found
    return _pixels(X), y.astype(int), _pixels(X_test), y_test.astype(int)


def _part(file, n_test):
    """Random split of the only part of a data set that is at hand."""
    X, y = needed(file, ("x", "y"))
    return split(_pixels(X), y.astype(int), n_test)


@_data_set("mnist", _PIXELS)
def mnist():
    return _whole("mnist", "mnist_784")


@_data_set("mnist8k", _PIXELS)
def mnist8k():
    _, _, X, y = mnist()
    return split(X, y, 2_000)


@_data_set("fashion", _PIXELS)
def fashion():
    return _whole("fashion_mnist", "Fashion-MNIST")


@_data_set("fashion10k", _PIXELS)
def fashion10k():
    X, y, X_test, y_test = fashion()
    return X[:10_000], y[:10_000], X_test, y_test


@_data_set("kmnist8k", _PIXELS)
def kmnist8k():
    found = arrays("kmnist_test", ("x", "y"))
    if found is None:
        bunch = openml("Kuzushiji-MNIST")
        found = bunch.data[60_000:], bunch.target[60_000:]
    X, y = found
    return split(_pixels(X), y.astype(int), 2_000)


@_data_set("notmnist8k", _PIXELS)
def notmnist8k():
    return _part("notmnist_part", 2_000)


@_data_set("mednist", _PIXELS)
def mednist():
    return _part("mednist_part", 1_200)


@_data_set("chest", _PIXELS)
def chest():
    X, y, X_test, y_test = needed("chest_xray_pneumonia", _ALL)
    return _pixels(X), y.astype(int), _pixels(X_test), y_test.astype(int)


@_data_set("chest_mixed", _PIXELS + "; the two parts of the set, which differ, are mixed")
def chest_mixed():
    X, y, X_test, y_test = chest()
    return split(np.concatenate([X, X_test]), np.concatenate([y, y_test]), 1168)


@_data_set("cifar10", _PIXELS + "; colours are averaged")
def cifar10():
    """10,000 grey images to train; OpenML has another sample of the same images."""
    found = arrays("cifar10", _ALL)
    if found is None:
        bunch = openml("CIFAR_10_small")
        images = bunch.data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        y = bunch.target
        found = images[:15_000], y[:15_000], images[15_000:], y[15_000:]
    X, y, X_test, y_test = found
    grey = [_pixels(part.mean(axis=3, dtype=np.float32)) for part in (X[:10_000], X_test)]
    return grey[0], y[:10_000].astype(int), grey[1], y_test.astype(int)


# Many classes ----------------------------------------------------------------------------------

# Images are averaged over squares of 2 x 2 pixels first, which is public.
_HALVED = _PIXELS + " and are averaged over squares of 2 x 2"


def halved(X):
    """Mean of each square of 2 x 2 pixels of square images."""
    side = int(np.sqrt(X.shape[1]))
    squares = X.reshape(len(X), side // 2, 2, side // 2, 2)
    return squares.mean(axis=(2, 4)).reshape(len(X), -1)


def _pairs(X, y):
    """Two images side by side, each in one pair only; one class for each pair of classes."""
    order = np.random.default_rng(0).permutation(len(X))
    left, right = order[: len(X) // 2], order[len(X) // 2 : 2 * (len(X) // 2)]
    return np.hstack([X[left], X[right]]), 10 * y[left] + y[right]


@_data_set("mnist_pairs", _HALVED)
def mnist_pairs():
    """100 classes of 60 rows: two digits side by side."""
    X, y, X_test, y_test = mnist()
    return *_pairs(halved(X[:12_000]), y[:12_000]), *_pairs(halved(X_test), y_test)


@_data_set("fashion_pairs", _PIXELS + " and are averaged over squares of 4 x 4")
def fashion_pairs():
    """100 classes of 60 rows: two pieces of clothing side by side."""
    X, y, X_test, y_test = fashion()
    X, X_test = (halved(halved(part)) for part in (X[:12_000], X_test))
    return *_pairs(X, y[:12_000]), *_pairs(X_test, y_test)


@_data_set("kmnist_pairs", _PIXELS + " and are averaged over squares of 4 x 4")
def kmnist_pairs():
    """100 classes of 40 rows: two characters side by side."""
    X, y, X_test, y_test = kmnist8k()
    return *_pairs(halved(halved(X)), y), *_pairs(halved(halved(X_test)), y_test)


@_data_set("glyphs", _HALVED)
def glyphs():
    """40 classes: digits, letters, characters and clothing."""
    parts = [load() for load in (mnist8k, notmnist8k, kmnist8k, fashion10k)]
    X, X_test = (halved(np.vstack([part[i] for part in parts])) for i in (0, 2))
    y, y_test = (np.hstack([part[i] + 10 * k for k, part in enumerate(parts)]) for i in (1, 3))
    test = np.random.default_rng(0).permutation(len(X_test))[:5_000]
    return X, y, X_test[test], y_test[test]


@_data_set("cifar20", _PIXELS + "; colours are averaged, and squares of 2 x 2 pixels")
def cifar20():
    """The 20 coarse classes of 100 fine ones, of 100 rows each."""
    images, y = needed("cifar100_part", ("x", "y_coarse"))
    X = halved(_pixels(images.mean(axis=3, dtype=np.float32)))
    return split(X, y.astype(int), 500)


# Age, sex; five jitters, six shimmers and noise, of which logarithms are taken; four more.
_VOICES_LOW = [30, 0, 1e-3, 5e-6, 5e-4, 5e-4, 1e-3, 5e-3, 0.05, 3e-3, 3e-3, 5e-3, 0.01, 1e-3]
_VOICES_LOW += [0, 0, 0.5, 0]
_VOICES_HIGH = [90, 1, 0.1, 5e-4, 0.05, 0.05, 0.15, 0.25, 2.0, 0.15, 0.15, 0.25, 0.5, 1.0]
_VOICES_HIGH += [40, 1, 0.9, 1]


@_data_set("voices", "range of each column (round numbers, cut off beyond), of small ones in logs")
def voices():
    """42 classes: which patient a recording is of."""
    X, y = needed("parkinsons_telemonitoring", ("x", "subject"))
    X = np.delete(X, 2, axis=1)  # without the day of the recording
    rows, low, high = (np.array(a, dtype=float) for a in (X, _VOICES_LOW, _VOICES_HIGH))
    for part in (rows, low, high):
        part[..., 2:14] = np.log(np.maximum(part[..., 2:14], 1e-7))
    return split(to_unit_ball(rows, low, high), y.astype(int) - 1, len(X) // 5)


def _sources():
    """Lines of the modules of Python, NumPy, SciPy and scikit-learn, longest first."""
    folders = [Path(os.__file__).parent]
    folders += [Path(package.__file__).parent for package in (np, scipy, sklearn)]
    skipped = ("site-packages", "dist-packages", "test", "externals", "encodings")
    found = []
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            name = str(path.relative_to(folder))
            if not any(part in name for part in skipped):
                lines = path.read_text(errors="ignore").splitlines()
                found.append([line for line in lines if line.strip()])
    return sorted(found, key=len, reverse=True)


def _pieces(lines, n_pieces, n_lines=10):
    """So many random pieces of a module."""
    starts = np.random.default_rng(0).permutation(len(lines) // n_lines)[:n_pieces]
    return ["\n".join(lines[n_lines * start : n_lines * (start + 1)]) for start in starts]


def _of_modules(modules, n_train=130, n_test=30):
    pieces = [_pieces(lines, n_train + n_test) for lines in modules]
    y = np.arange(len(modules))
    train = [text for of_one in pieces for text in of_one[:n_train]]
    test = [text for of_one in pieces for text in of_one[n_train:]]
    return train, np.repeat(y, n_train), test, np.repeat(y, n_test)


@_data_set("code", "features of text that were fitted to modules of which no piece is a row")
def code():
    """77 classes of 130 rows: which module ten lines are from; 200 features of their words."""
    sources = _sources()
    texts, y, texts_test, y_test = _of_modules(sources[:77])
    public = [piece for lines in sources[77:400] for piece in _pieces(lines, 40)]
    words = TfidfVectorizer(sublinear_tf=True, min_df=3, max_features=20_000)
    features = make_pipeline(words, TruncatedSVD(200, random_state=0)).fit(public)
    X, X_test = (features.transform(part).astype(np.float32) for part in (texts, texts_test))
    return X, y, X_test, y_test


@_data_set("code_hashed", "none: words are hashed")
def code_hashed():
    """30 classes of 100 rows: which module ten lines are from; their words hashed to 500."""
    texts, y, texts_test, y_test = _of_modules(_sources()[77:107], 100, 25)
    words = HashingVectorizer(n_features=500, alternate_sign=True)
    X, X_test = (words.transform(part).toarray().astype(np.float32) for part in (texts, texts_test))
    return X, y, X_test, y_test


# Tables ---------------------------------------------------------------------------------------

_ADULT_NUMBERS = {  # the census codebook
    "age": (17, 90),
    "education-num": (1, 16),
    "capital-gain": (0, 99_999),
    "capital-loss": (0, 4_356),
    "hours-per-week": (1, 99),
}
_ADULT_CATEGORIES = {  # and its number of categories, the missing one included
    "workclass": 9,
    "education": 16,
    "marital-status": 7,
    "occupation": 15,
    "relationship": 6,
    "race": 5,
    "sex": 2,
    "native-country": 42,
}


@_data_set("adult", "ranges and categories of the census codebook: numbers to [0, 1], one-hot")
def adult():
    """10,000 random training rows; sampling weights are left out."""
    train, test = _adult_from_folder() or _adult_from_openml()
    X, y = _adult_rows(*train)
    X_test, y_test = _adult_rows(*test)
    rows = np.random.default_rng(0).permutation(len(X))[:10_000]
    return X[rows], y[rows], X_test, y_test


def _adult_from_folder():
    found = arrays("adult", ("num_names",))
    if found is None:
        return None
    columns = [list(found[0]).index(name) for name in _ADULT_NUMBERS]
    parts = [arrays("adult", (f"{p}_num", f"{p}_cat", f"{p}_y")) for p in ("train", "test")]
    return [(numbers[:, columns], codes, y) for numbers, codes, y in parts]


def _adult_from_openml():
    frame = openml("adult", version=2, as_frame=True).frame
    numbers = frame[list(_ADULT_NUMBERS)].to_numpy(dtype=float)
    # Levels in the order of their names, as in the file; "?" is missing here and comes first.
    texts = frame[list(_ADULT_CATEGORIES)].astype(object).fillna("?").to_numpy().astype(str)
    codes = np.stack([np.unique(t, return_inverse=True)[1] for t in texts.T], axis=1)
    y = (frame["class"] == ">50K").to_numpy()
    n = 16_281  # the original test set comes first
    return [(numbers[rows], codes[rows], y[rows]) for rows in (slice(n, None), slice(n))]


def _adult_rows(numbers, codes, y):
    low, high = np.array(list(_ADULT_NUMBERS.values()), dtype=float).T
    scaled = np.clip((numbers - low) / (high - low), 0, 1)
    onehot = [np.eye(k)[codes[:, j]] for j, k in enumerate(_ADULT_CATEGORIES.values())]
    return np.hstack([scaled, *onehot]), y.astype(int)


_WINE_BOUNDS = (  # acids, sugar, salt, sulphur dioxide (free, all), density, pH, sulphates, alcohol
    (3, 0, 0, 0, 0, 0, 0, 0.985, 2.7, 0.2, 8),
    (16, 1.6, 1.7, 50, 0.3, 100, 400, 1.01, 4.1, 2.0, 15),
)
_WINE = "ranges in which wines are sold (round numbers, cut off beyond)"


@_data_set("wine_colour", _WINE)
def wine_colour():
    """Red (0) or white (1)."""
    found = arrays("wine_quality", ("x", "is_white"))
    if found is None:
        parts = [openml(f"wine-quality-{colour}").data for colour in ("red", "white")]
        found = np.vstack(parts), np.repeat([0, 1], [len(part) for part in parts])
    X, white = found
    return split(to_unit_ball(X, *_WINE_BOUNDS), white.astype(int), len(X) // 5)


@_data_set("wine_quality", _WINE + "; scores are 0 to 10", target_bounds=(0.0, 10.0))
def wine_quality():
    found = arrays("wine_quality", ("x", "y"))
    if found is None:
        bunch = openml("wine_quality")
        found = bunch.data, bunch.target
    X, score = found
    return split(to_unit_ball(X, *_WINE_BOUNDS), score.astype(float), len(X) // 5)


@_data_set(
    "california",
    "map of California, ages to 52 years and incomes to 15 as capped by the census, logarithms"
    " of counts from 1 to 40,000; values are capped at 500,001 dollars",
    target_bounds=(0.0, 500_001.0),
)
def california():
    """Columns: longitude, latitude, age, rooms, bedrooms, population, households, income."""
    found = arrays("california_housing", ("x", "y"))
    if found is None:
        found = _california_from_openml()
    X, y = found[0].astype(float), found[1].astype(float)
    # A missing count is taken to be a fifth of the rooms: a rule about one row.
    X[:, 4] = np.where(np.isnan(X[:, 4]), X[:, 3] / 5, X[:, 4])
    X[:, 3:7] = np.log(np.maximum(X[:, 3:7], 1))
    low = (-125, 32, 0, 0, 0, 0, 0, 0)
    high = (-114, 42, 52, *[np.log(40_000)] * 4, 15)
    return split(to_unit_ball(X, low, high), y, len(X) // 5)


def _california_from_openml():
    frame = openml("houses", as_frame=True).frame
    counts = ["total_rooms", "total_bedrooms", "population", "households"]
    columns = ["longitude", "latitude", "housing_median_age", *counts, "median_income"]
    return frame[columns].to_numpy(), frame["median_house_value"].to_numpy()


_RAW = {  # file, columns and target
    "adult": ("adult", "train_num", "train_y"),
    "california": ("california_housing", "x", "y"),
    "kegg": ("uci_regression", "keggundirected_x", "keggundirected_y"),
    "parkinson": ("parkinsons_telemonitoring", "x", "total_updrs"),
    "school": ("school", "x", "y"),
    "wine_quality": ("wine_quality", "x", "y"),
}


def raw(name):
    """Columns and target of a table as they come, missing values as 0."""
    file, *names = _RAW.get(name, ("uci_regression", f"{name}_x", f"{name}_y"))
    X, y = needed(file, tuple(names))
    return np.nan_to_num(np.asarray(X, float)), y


def _uci(name, low, high):
    X, y = raw(name)
    return split(to_unit_ball(X, low, high), y.astype(float), len(X) // 5)


@_data_set(
    "power_plant",
    "ranges of the columns and of the target, in the description of the data set",
    target_bounds=(420.26, 495.76),
)
def power_plant():
    return _uci("power_plant", (1.81, 25.36, 992.89, 25.56), (37.11, 81.56, 1033.30, 100.16))


@_data_set(
    "kin8nm",
    "joint angles are within half a turn; the distance within 1.5 (reach of the arm, rounded)",
    target_bounds=(0.0, 1.5),
)
def kin8nm():
    return _uci("kin8nm", [-np.pi / 2] * 8, [np.pi / 2] * 8)


@_data_set(
    "protein",
    "size of each column (round numbers, cut off beyond); the target is 0 to 21 angstrom",
    target_bounds=(0.0, 21.0),
)
def protein():
    """Columns: areas (2), shares, area, mass-weighted area, deviation, distance, penalty, order."""
    high = (40_000, 15_000, 1, 400, 6e6, 600, 20_000, 350, 60)
    return _uci("protein", [0] * 9, high)


@_data_set(
    "bike",
    "ranges of calendar and scaled weather less the means of the file, which were taken over"
    " all rows and are assumed public; counts from 1 to 1,000 as logarithms less their mean",
    target_bounds=(-4.54, 2.38),
)
def bike():
    """Columns: year, month, day, season, year, month, hour, three of the day, five of weather."""
    ranges = [(0, 1), (1, 12), (1, 31), (1, 4), (0, 1), (1, 12), (0, 23), (0, 1), (0, 6), (0, 1)]
    ranges += [(1, 4)] + [(0, 1)] * 4
    means = (0.503, 6.538, 15.683, 2.502, 0.503, 6.538, 11.547, 0.029, 3.004, 0.683)
    means += (1.425, 0.497, 0.476, 0.627, 0.19)
    low, high = np.array(ranges, dtype=float).T - np.array(means)
    return _uci("bike", low, high)


def main():
    for name in sys.argv[1:] or DATA_SETS:
        X, y, X_test, _ = load(name)
        spread = f"{y.min():g} to {y.max():g}" if DATA_SETS[name].target_bounds else np.unique(y)
        longest = np.linalg.norm(X, axis=1).max()
        print(f"{name:<13} {X.shape} {X.dtype} test {len(X_test)}, longest {longest:.3g}: {spread}")


if __name__ == "__main__":
    main()
