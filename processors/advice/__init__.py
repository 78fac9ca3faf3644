"""Measurements and advice that no decision depends on: prices, prompt mistakes, tool usage."""
