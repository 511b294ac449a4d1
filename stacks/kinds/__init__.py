"""What each kind of job needs on AWS: `base` serves all kinds; a kind that needs more has a file of its own."""
