"""From a raw table, and what is public about its columns, to a private model."""

from dpsubspace._names import exported

__all__, __getattr__, __dir__ = exported("tables")  # pyright: ignore[reportUnsupportedDunderAll]
