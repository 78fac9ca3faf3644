"""Measurements and advice, on which no decision depends: prices, prompt mistakes, tool usage."""
