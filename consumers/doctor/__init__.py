"""The checks of `foldlog doctor`."""
