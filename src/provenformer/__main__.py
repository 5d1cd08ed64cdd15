"""`python -m provenformer`: the command line."""

from provenformer.cli import main

if __name__ == "__main__":
    main()
