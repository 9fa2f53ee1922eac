"""Type checkers read the public names here."""

from dpsubspace._workflow.search import PrivateSearch as PrivateSearch
