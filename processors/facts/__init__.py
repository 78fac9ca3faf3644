"""The facts of `session-facts` (schemas/facts.py), derived from events. Pure.

derive.py derives the fact of an event; drafts.py packs facts until they are sent; turn_clock.py
measures turns; waiting_calls.py lists the calls that wait for a person.
"""
