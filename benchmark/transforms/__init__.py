"""Normalisation and augmentation of batches of images."""
