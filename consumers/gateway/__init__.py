"""The HTTP server for viewers.

It owns no state: it holds only views of the log and the connected viewers.
"""
