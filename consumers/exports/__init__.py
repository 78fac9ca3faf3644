"""What leaves the log for other tools: rows, tables, bundles, reports. Each is a fold of it."""
