"""What a cell under load says: many requests at once.

times       the requests of a cell as columns of times
window      the steady window, and what lies inside it
contradictions  what a cell and its requests say twice, and not alike
figures     a cell in numbers
reading     the cells of a run, one after the other
summary     an arm over its blocks: throughput, latencies, speedup
crossover   at how many clients speculation stops paying, or starts to
"""
