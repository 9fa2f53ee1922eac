"""Tables as they come: what is public about their columns, and rows as numbers that learn well."""
