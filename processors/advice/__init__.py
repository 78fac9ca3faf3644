"""Measurements and advice, on which no decision depends: prices, prompt mistakes, tool usage.

Read in this order: `prices.py`, `mistakes.py` and what it detects with (`prefix_drift.py`,
`prompt_growth.py`, `tool_echo.py`), `block_usage.py`, `placement.py`.
"""
