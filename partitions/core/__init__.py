"""What all partition schemes share: base class, registry, storage, measures of heterogeneity."""
