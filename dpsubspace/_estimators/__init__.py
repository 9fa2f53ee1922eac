"""What users fit: check, plan, run, store."""
