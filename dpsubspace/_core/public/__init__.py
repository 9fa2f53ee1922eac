"""Information from public rows, which costs no privacy."""
