"""A run made ready: the model as it was given, the configuration, the target, the graph after passes and its plan."""
