"""The contract of the log: one .avsc per event, the dataclasses, the codec and the topics.

All other packages import this one; it imports none of them. Read events/ first, then codec.py,
topics.py and memory.py (the events of memory). compiled.py and _decoder.c are an optional, faster
decoder.
"""
