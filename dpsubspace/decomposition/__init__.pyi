"""Type checkers read the public names here."""

from dpsubspace.decomposition._pca import DPPCA as DPPCA
