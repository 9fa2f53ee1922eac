"""What stands around estimators: ledgers, audits, pictures."""
