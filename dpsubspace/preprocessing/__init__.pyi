"""Type checkers read the public names here."""

from dpsubspace._estimators.scaler import BoundedScaler as BoundedScaler
