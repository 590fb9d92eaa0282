"""Gates: whether another build of an engine decodes more slowly, and which build of several was the first to do so."""
