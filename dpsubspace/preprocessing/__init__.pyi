"""Type checkers read the public names here."""

from dpsubspace.preprocessing._scaler import BoundedScaler as BoundedScaler
