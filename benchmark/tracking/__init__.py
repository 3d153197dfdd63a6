"""Weights & Biases. Only this package imports wandb."""
