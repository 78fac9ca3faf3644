"""Tools: how they are declared, run, stopped and reported.

Read in this order: tool.py (the declaration), arguments.py (schema and check), call.py (one run of
a claimed call), run.py (the function in a task or thread), context.py, workdir.py and
output_sink.py (what a running tool gets), children.py and reaper.py (its processes),
by_reference.py, isolated.py and isolated_child.py (a function in a process of its own),
outcomes.py, results.py and log_text.py (the result for the model), side_log.py, blob_wait.py and
result_cache.py (what is kept of it), tiers.py (which tools a request has). search_script.py runs as
a process of its own. builtin.py has the tools of the default agent (ALL). Other tools are in
project.py (build_and_deploy), memory.py (memory) and outside/fetch.py (fetch_url).
"""
