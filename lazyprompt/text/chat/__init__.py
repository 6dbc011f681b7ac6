"""A model's own chat template: rendered, looked into, probed."""
