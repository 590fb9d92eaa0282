"""What a cell under load says: many requests at once."""
