"""What operators watch: metrics and traces, of what happened and never of what was said."""
