"""Exports the log for other tools, as rows, tables, bundles and reports. Each export is a fold."""
