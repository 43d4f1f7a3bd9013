"""Methods that choose scales and roundings of weights: weight scale search, HQQ, GPTQ, GPTAQ."""
