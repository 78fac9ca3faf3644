"""Model calls: the stream of one attempt, its chunks, its answer and its errors.

Read in this order: `call.py` (one attempt), `client.py` and `sse.py` (the stream), `blocks.py`,
`json_bytes.py` and `answer.py` (from deltas to an answer), `chunks.py` (what viewers see early),
`resumed.py` (the rest of a lost answer), `errors.py` (what a failure means).
"""
