"""Type checkers read the public names here."""

from dpsubspace.inspection._importance_display import ImportanceDisplay as ImportanceDisplay
from dpsubspace.inspection._shape_display import ShapeDisplay as ShapeDisplay
