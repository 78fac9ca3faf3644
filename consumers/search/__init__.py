"""Full-text and vector search over the messages of many sessions."""
