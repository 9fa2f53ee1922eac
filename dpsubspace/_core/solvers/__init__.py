"""From a problem to weights."""
