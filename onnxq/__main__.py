"""`python -m onnxq` is the command `onnxq`."""

from onnxq.cli import main

if __name__ == "__main__":
    main()
