"""Where users are: the calls, folders and logs of other tools, each in a module of the tool's name.

Nothing here is imported by the rest of onnxq but the command line, and no module needs its tool before it is used.
"""
