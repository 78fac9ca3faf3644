"""Local state of a worker: views by partition, fork seeds, chunks, the directory lock."""
