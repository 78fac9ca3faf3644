"""What is shown, in the words of the clients of others: one pure projection per protocol."""
