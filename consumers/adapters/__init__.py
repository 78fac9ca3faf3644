"""Stores sessions of other frameworks in the log.

Each framework has one file in this folder, and is installed as an extra of the package.
"""
