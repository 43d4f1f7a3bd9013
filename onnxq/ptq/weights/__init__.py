"""Methods that choose scales and roundings of weights: GPTQ, HQQ, weight scale search."""
