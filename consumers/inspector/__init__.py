"""The inspector: a page that shows a session at any offset, and the JSON behind it."""
