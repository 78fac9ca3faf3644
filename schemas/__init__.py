"""The contract: one .avsc per event, dataclasses, codec, topics. Imports no other package."""
