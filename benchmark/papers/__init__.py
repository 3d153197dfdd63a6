"""What a single paper needs: analyses, drawings, the fidelity ledger and the ranks of the leaderboard."""
