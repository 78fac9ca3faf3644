"""The contract of the log: one .avsc per event, the dataclasses, the codec and the topics.

All other packages import this one; it imports none of them. Read events/ first, then codec.py,
topics.py and memory.py (the events of memory). ids.py, enums.py, bounds.py, value.py, grant.py and
record.py are types; canonical.py, nesting.py and tokens.py are about JSON and text;
message_content.py, attachments.py and file_endings.py about messages; memory_paths.py, origin.py,
seed.py and tabs.py about memory, headers, forks and `user-sessions`. facts.py has the facts of
`session-facts`, looks.py the records of `operator-looks`. compiled.py and _decoder.c are an
optional, faster decoder.
"""
