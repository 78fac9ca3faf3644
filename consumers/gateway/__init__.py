"""The HTTP server for viewers: it owns no state, only views of the log and the connected viewers.
"""
