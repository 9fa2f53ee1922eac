"""What stands around estimators: ledgers, audits, plots."""
