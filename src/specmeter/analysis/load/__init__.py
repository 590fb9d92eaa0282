"""What a run under load says: many requests at once.

window      the steady window of a cell, and what lies inside it
summary     cells in numbers, and an arm over its blocks: throughput, latencies, speedup
crossover   at how many clients speculation stops paying, or starts to
"""
