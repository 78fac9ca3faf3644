"""The `foldlog` command: thin, every decision is made in the other rooms."""
