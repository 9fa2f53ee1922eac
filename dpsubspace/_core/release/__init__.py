"""Releases: noise, and the only functions that add it to bounded sums."""
