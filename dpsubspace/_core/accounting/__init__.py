"""Privacy cost of a fit; uses no data, no noise and no estimator."""
