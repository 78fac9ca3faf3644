"""The interpreter: folds, the WAKE table, effects, the worker. Imports schemas, log and producers.

Read in this order: fold/ (events to views), wake/ (what is pending), request/ (what the model
gets); then agent.py, tools/, effects/, store/ and worker/, which run them.
"""
