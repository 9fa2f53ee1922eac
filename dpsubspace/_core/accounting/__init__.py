"""What a fit costs; knows no data, no noise and no estimator."""
