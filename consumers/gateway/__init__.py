"""The HTTP server of viewers: it holds no truth, only views of the log and who looks at them."""
