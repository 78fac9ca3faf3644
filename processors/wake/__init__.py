"""What is pending next: facts of a session, one table, and the decisions made from it."""
