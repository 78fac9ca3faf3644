"""From an agent, its instruction files and its memory to the static prefix of its requests."""
