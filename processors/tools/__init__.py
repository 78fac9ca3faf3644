"""Tools: how they are declared, run, stopped and reported."""
