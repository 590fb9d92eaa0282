"""What a run says: speedups with intervals, answers, comparisons, explanations, predictions. Nothing here prints."""
