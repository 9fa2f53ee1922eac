"""Private rows, bounded and never copied, and public ones; nothing is released here."""
