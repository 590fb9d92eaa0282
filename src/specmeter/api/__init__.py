"""What `import specmeter` offers: runs, experiments, audits, comparisons and predictions as Python objects.

Everything goes through the rooms that the command line uses; nothing is computed a second time. What the command line
withholds because it is false is withheld here.
"""
