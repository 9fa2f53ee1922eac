"""Private training of torch modules, and features of them."""

from dpsubspace._names import exported

__all__, __getattr__, __dir__ = exported("neural_network")  # pyright: ignore[reportUnsupportedDunderAll]
