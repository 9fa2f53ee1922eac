"""Releases that are made once: counts, quantiles, means, second moments."""
