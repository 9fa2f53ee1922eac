"""Type checkers read the public names here."""

from dpsubspace._estimators.pca import DPPCA as DPPCA
