"""Post-training quantization: methods that make a calibrated model more accurate, and the search over them.

A method is one file with a function that registers itself (`onnxq.ptq.method.improvement`), under the name of its
paper. What the search tries, and when, is one line for each in `onnxq.ptq.search.schedule`.

    equalization/       the float model computes the same with other weights
      cross_layer_equalization      Nagel et al. 2019, Data-Free Quantization
      high_bias_absorption          Nagel et al. 2019, Data-Free Quantization
      smoothquant                   Xiao et al. 2022, SmoothQuant
      insert_smoothing              Xiao et al. 2022, by a Mul where nothing else can take the division up
      awq                           Lin et al. 2023, AWQ
      outlier_channel_splitting     Zhao et al. 2019
    outlier_placement               Bondarenko et al. 2021, sums and norms with outliers in a wider format
    range_setting                   Nagel et al. 2021, A White Paper on Neural Network Quantization
    weights/            scales and roundings of weights, from second moments of their inputs
      weight_scale_search           Banner et al. 2019; Lin et al. 2023 (clipping)
      hqq                           Badri & Shaji 2023, Half-Quadratic Quantization
      gptq                          Frantar et al. 2022
      gptaq                         Li et al. 2025, GPTAQ; Behdin et al. 2023, QuantEase
    bias_correction/    the shift of means that quantization causes
      bias_correction               Nagel et al. 2019; Banner et al. 2019
    reconstruction/     roundings and scales fitted with gradients to the float model; torch
      adaround                      Nagel et al. 2020, Up or Down?
      adaquant                      Hubara et al. 2020
      brecq                         Li et al. 2021
      qdrop                         Wei et al. 2022
      autoround                     Cheng et al. 2023
    search/             which of them a model gets
      schedule          what each effort tries, in which order
      acceptance        the test by which a result is kept or dropped
      evaluator         the score of a model; sample_split: the samples that it is measured on
      run               carries the schedule out
      stage             the search as a stage of the pipeline

Other files of a family are what its methods have in common: `equalization/scalable_channels` (which channels can be
scaled), `weights/layers` (weights as matrices of their layers), `weights/moments` (E[x xT]), `reconstruction/blocks`.
"""
