"""Stores sessions of other frameworks in the log.

Each framework has one file here, and is an extra.
"""
