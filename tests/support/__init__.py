"""What the tests of several folders share: servers, judges, models, texts and paths; and the tests of these."""
