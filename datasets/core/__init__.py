"""What all data sets share: arrays, registry, preparation, raw files."""
