"""Fine-tuning samples with text, training labels and token ids. Read samples.py first."""
