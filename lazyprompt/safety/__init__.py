"""Control sequences of models: found in untrusted text, neutralised or refused. Read policy.py first."""
