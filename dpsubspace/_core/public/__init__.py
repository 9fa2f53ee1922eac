"""What public rows say; costs nothing."""
