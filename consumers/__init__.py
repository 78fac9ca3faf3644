"""The read side: transcript streams, inspector, replay. Writes nothing but GEN_SENT."""
