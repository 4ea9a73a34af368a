"""`python -m ocr`: the same program as `glyphfeed`."""

from ocr.cli import main

if __name__ == "__main__":
    main()
