"""What happens when a decorated function is called: dispatch, policies in force, overrides."""
