"""Tools: how they are declared, run, stopped and reported.

Read in this order: tool.py (the declaration), arguments.py (schema and check), call.py (one run of
a claimed call), run.py (the function in a task or thread), results.py (the result for the model).
builtin.py has the tools of the default agent (ALL). Other tools are in project.py
(build_and_deploy), memory/tools.py (memory) and outside/fetch.py (fetch_url).
"""
