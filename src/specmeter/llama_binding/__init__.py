"""llama.cpp in this process, through its C interface.

capi          structure layouts of one llama.cpp version, proven when the library is loaded
model         a model file: vocabulary, texts to tokens and back
context       sequences of tokens in a model's memory: forwards, cuts, checkpoints, the experts that a forward reads
sampling      logits -> probabilities -> a token
"""
