"""What turns a function and a resolved policy into a callable, one room a namespace."""
