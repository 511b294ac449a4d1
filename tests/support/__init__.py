"""An in-process cloud: the synthesised CDK app on moto, the real handlers, and a clock that tests move."""
