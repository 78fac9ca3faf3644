"""Model calls: the stream of one attempt, its chunks, its answer and its errors."""
