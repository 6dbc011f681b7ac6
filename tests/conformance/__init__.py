"""The conformance vectors of Prompty."""
