"""Names of other libraries over this package, for programs written for them. Read agentscope.py first."""
