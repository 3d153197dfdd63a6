"""Tables as data: their cells, the runs behind them, tuned values and estimates."""
