"""Where layers come from: files, and what is read out of the environment."""
