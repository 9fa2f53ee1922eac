"""Gradients of single records, and the clip."""
