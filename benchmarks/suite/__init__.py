"""Another library's own test suite, with its functions put under policy."""
