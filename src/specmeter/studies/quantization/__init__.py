"""The Apple document's studies of quantized models: a ladder of one model, and two families at several widths.

ladder, ladder_claims    apple-quant-ladder
qat_ptq, qat_ptq_claims  qat-vs-ptq
acceptance               quant-acceptance: perplexity beside acceptance
rungs                    one model of a ladder beside the others
published                what the document printed
"""
