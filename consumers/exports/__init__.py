"""Exports of the log for other tools: rows, tables, bundles, reports. Each is a fold of the log."""
