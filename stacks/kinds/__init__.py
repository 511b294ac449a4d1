"""What each kind of job needs on AWS: `base` for all of them, and a file for each that needs more."""
