"""What happens next: the facts of a session, one table of what they owe, and the decisions."""
