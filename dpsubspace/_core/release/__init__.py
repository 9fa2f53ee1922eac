"""The only way out: noise, and the functions that add it to bounded sums."""
