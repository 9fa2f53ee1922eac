"""Tables as they come: what is public about their columns, and their rows as numbers and codes."""
