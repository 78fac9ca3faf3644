"""The contract: an .avsc per event, dataclasses, codec, topics. Knows no other room."""
