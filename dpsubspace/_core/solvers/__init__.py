"""Solvers: they turn a problem into weights."""
