"""The interpreter: folds, the WAKE table, effects, the worker. Imports schemas, log and producers.

Read in this order: fold/ (events to views), wake/ (the pending work), request/ (the requests to the
model); then agent.py, tools/, effects/, store/ and worker/, which use these three.
"""
