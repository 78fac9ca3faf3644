"""The next actions of a session: its facts, the table of what they owe, and the decisions."""
