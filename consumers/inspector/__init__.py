"""The pages that show a session at any offset, and the views they are made of."""
