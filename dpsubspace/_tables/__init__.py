"""Tables as they come: what is known of their columns, how they are read and encoded."""
