"""Type checkers read the public names here."""

from dpsubspace._workflow.importance_display import ImportanceDisplay as ImportanceDisplay
from dpsubspace._workflow.shape_display import ShapeDisplay as ShapeDisplay
