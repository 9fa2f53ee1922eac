"""Type checkers read the public names here."""

from dpsubspace.model_selection._search import PrivateSearch as PrivateSearch
