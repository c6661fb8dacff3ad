"""What only the book's pages use; nothing outside imports it."""
