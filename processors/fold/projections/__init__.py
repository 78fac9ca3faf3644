"""The views of a session, one per file, each with the fold that computes it. Pure.

Read session_state.py, messages.py and transcript.py (what people see), turn.py, context.py,
compaction.py, prefixes.py and items.py (what the model gets), background.py and delivery.py (work
beside the turn), ledger.py (tokens); partition.py belongs to no session, message_sha.py is a hash.
The turn and the context have two files each: turn_view.py and context_view.py define the values,
turn.py and context.py the folds. To add a view, add a file here, a row of VIEWS in fold/views.py, a
function in fold/inherited.py for the part of the view that a fork inherits, and tests in
tests/processors/fold/test_projections_NAME.py.
"""
