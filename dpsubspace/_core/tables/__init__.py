"""Tables: public facts about their columns, and encodings of rows from which models learn well."""
