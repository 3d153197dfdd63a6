"""The papers' figures: a spec in conf/figure, a kind of drawing here, numbers from runs or from an analysis."""
