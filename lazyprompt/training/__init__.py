"""Fine-tuning samples: text, the parts of it to train, and token ids. Read samples.py first."""
